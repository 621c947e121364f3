"""JAX loops that save the state of a feed with Orbax, and resume exactly.

`tests/test_framework_cases.py` runs this file in a process without other frameworks, because JAX conflicts with some.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

import forebay as fb

ROWS, BATCH, EPOCHS = 70, 16, 3


class InterruptedLoopError(Exception):
    pass


@jax.jit
def train_step(weights, x, y):
    loss, gradient = jax.value_and_grad(lambda weights: jnp.mean((x @ weights - y) ** 2))(weights)
    return weights - 0.01 * gradient, loss


def make_feed(batch=BATCH):
    x = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")
    rows = {"x": x, "y": x.sum(axis=1), "row": np.arange(ROWS, dtype=np.int32)}
    return fb.from_arrays(rows).shuffle(seed=3).batch(batch).feed("jax", device="cpu")


def train(manager, *, save_every=1, stop_at=None, batch=BATCH):
    """Train through the last epoch, from the latest checkpoint if there is one.

    Return the rows and the loss of each step, and the final weights.
    """
    weights, feed, step, seen = jnp.zeros(4), make_feed(batch), 0, []
    if manager is not None and manager.latest_step() is not None:
        step = manager.latest_step()
        items = ocp.args.Composite(weights=ocp.args.StandardRestore({"w": weights}), feed=ocp.args.JsonRestore())
        restored = manager.restore(step, args=items)
        weights = restored["weights"]["w"]
        feed.load_state_dict(restored["feed"])
    while feed.state_dict()["epoch"] < EPOCHS:
        for values in feed:
            weights, loss = train_step(weights, values["x"], values["y"])
            step += 1
            seen.append((values["row"].tolist(), np.asarray(loss).tobytes()))
            if manager is not None and step % save_every == 0:
                items = ocp.args.Composite(
                    weights=ocp.args.StandardSave({"w": weights}), feed=ocp.args.JsonSave(feed.state_dict())
                )
                manager.save(step, args=items)
            if step == stop_at:
                raise InterruptedLoopError
    return seen, np.asarray(weights)


@pytest.fixture(scope="module")
def whole():
    return train(None)


def interrupt_run(folder, **options):
    with ocp.CheckpointManager(folder) as manager, pytest.raises(InterruptedLoopError):
        train(manager, **options)


@pytest.mark.parametrize(("save_every", "stop_at"), [(1, 1), (1, 5), (2, 7), (3, 11), (5, 12), (1, 14)])
def test_an_interrupted_loop_continues_with_the_same_rows_and_losses(whole, tmp_path, save_every, stop_at):
    interrupt_run(tmp_path, save_every=save_every, stop_at=stop_at)
    with ocp.CheckpointManager(tmp_path) as manager:
        seen, weights = train(manager, save_every=save_every)
    assert seen == whole[0][stop_at // save_every * save_every :]
    np.testing.assert_array_equal(weights, whole[1])


def test_a_loop_that_resumes_with_another_batch_size_gets_every_row_once_per_epoch(whole, tmp_path):
    interrupt_run(tmp_path, stop_at=2)
    with ocp.CheckpointManager(tmp_path) as manager:
        seen, _ = train(manager, batch=9)
    rows = itertools.chain.from_iterable(rows for rows, _ in whole[0][:2] + seen)
    assert sorted(rows) == sorted([*range(ROWS)] * EPOCHS)


def test_the_state_is_the_same_after_a_checkpoint(tmp_path):
    feed = make_feed()
    next(iter(feed))
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(1, args=ocp.args.Composite(feed=ocp.args.JsonSave(feed.state_dict())))
        manager.wait_until_finished()
        restored = manager.restore(1, args=ocp.args.Composite(feed=ocp.args.JsonRestore()))
    assert restored["feed"] == feed.state_dict()

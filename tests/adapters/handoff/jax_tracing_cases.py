"""Feeds and uploads inside functions that JAX traces.

`tests/test_framework_cases.py` runs this file in a process of its framework, because frameworks conflict in one
process.
"""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import forebay as fb
from forebay.adapters.handoff import jax as hand_off
from forebay.errors import FeedError

FLOATS = np.arange(600, dtype=np.float32).reshape(60, 10)
MESH = jax.sharding.Mesh(jax.devices()[:1], "data")
DEVICES = {"cpu": "cpu", "sharded": NamedSharding(MESH, PartitionSpec("data")), "copies": "cpu:0"}
COMPILED = {
    "jit": lambda step: jax.jit(step)(0.0),
    "jit of grad": lambda step: jax.jit(jax.grad(step))(0.0),
    "grad of jit": lambda step: jax.grad(jax.jit(step))(0.0),
    "checkpoint": lambda step: jax.checkpoint(step)(0.0),
    "eval_shape": lambda step: jax.eval_shape(step, 0.0),
    "scan": lambda step: jax.lax.scan(lambda carry, x: (step(carry), x), 0.0, np.zeros(2)),
}
UNCOMPILED = {
    "grad": lambda step: jax.grad(step)(0.0),
    "vmap": lambda step: jax.vmap(step)(np.zeros(2)),
    "disabled jit": lambda step: _without_jit(step),
}


@pytest.mark.parametrize("has_private_check", [True, False])
@pytest.mark.parametrize("case", COMPILED)
def test_a_feed_inside_a_compiled_function_is_refused(case, has_private_check, monkeypatch):
    if not has_private_check:
        monkeypatch.setattr(hand_off, "_is_untraced", lambda: False)
    with fb.from_arrays(FLOATS).batch(8).feed("jax", device="cpu") as feed:
        with pytest.raises(FeedError, match="Iterate the feed outside"):
            COMPILED[case](lambda x: x + next(feed).sum())
        assert float(next(feed)[0, 1]) == 1.0


@pytest.mark.parametrize("device", DEVICES)
def test_each_batch_of_a_group_is_refused(device):
    feed = fb.from_arrays(FLOATS[:56]).batch(4).feed("jax", device=DEVICES[device])
    with feed:
        for count in range(14):
            with pytest.raises(FeedError, match="Iterate the feed outside"):
                jax.jit(lambda x: x + next(feed).sum())(0.0)
            assert next(feed)[0, 1] == 40 * count + 1
        assert feed.stats()["batches"] == 14


def test_a_refused_batch_of_a_transform_on_the_device_is_not_lost():
    pipeline = fb.from_arrays(FLOATS).batch(6).map(fb.cast("float16"), where="device")
    with pipeline.feed("jax", device="cpu") as feed:
        epoch = iter(feed)
        next(epoch)
        with pytest.raises(FeedError, match="Iterate the feed outside"):
            jax.jit(lambda x: x + next(epoch).sum())(0.0)
        assert [float(batch[0, 0]) for batch in epoch] == [60.0 * number for number in range(1, 10)]


@pytest.mark.parametrize("device", DEVICES)
def test_every_hand_off_refuses_a_feed_inside_a_compiled_function(device):
    feed = fb.from_arrays(FLOATS[:56]).batch(8).feed("jax", device=DEVICES[device])
    with feed, pytest.raises(FeedError, match="Iterate the feed outside"):
        jax.jit(lambda x: x + next(feed).sum())(0.0)


@pytest.mark.parametrize("case", UNCOMPILED)
def test_a_transformation_that_compiles_nothing_may_take_a_batch(case):
    with fb.from_arrays(FLOATS).batch(60).feed("jax", device="cpu") as feed:
        UNCOMPILED[case](lambda x: x * next(feed).sum())
        assert feed.stats()["batches"] == 1


def test_an_upload_inside_a_compiled_function_is_the_same_array_as_outside():
    array = FLOATS.copy()
    add_up = jax.jit(lambda x: x + fb.upload_once(array, to="jax", device="cpu").sum())
    assert float(add_up(0.0)) == pytest.approx(float(FLOATS.sum()))
    assert isinstance(fb.upload_once(array, to="jax", device="cpu"), jax.Array)
    assert float(fb.upload_once(array, to="jax", device="cpu").sum()) == pytest.approx(float(FLOATS.sum()))


def _without_jit(step):
    with jax.disable_jit():
        jax.jit(step)(0.0)


def test_ragged_batches_pass_through_jit():
    with fb.from_source([np.ones(3), np.ones(1)]).batch(2, ragged=True).feed("jax") as fed:
        doubled = jax.jit(lambda ragged: jax.tree.map(lambda leaf: leaf * 2, ragged))(next(fed))
    assert np.asarray(doubled.values).tolist() == [2.0] * 4

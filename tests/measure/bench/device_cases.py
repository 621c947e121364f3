"""What every framework's consumer and step must do, on the CPU; run once for each, in a process of its own."""

import importlib
import os
from pathlib import Path

import numpy as np
import pytest

import forebay as fb
from forebay.measure.bench.consumers import require_gpu
from forebay.measure.bench.data import array
from forebay.measure.bench.device_delivery import Delivery
from forebay.measure.bench.model import Skip, Work
from forebay.measure.bench.stamps import WrongRowsError

FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"]
EDGE = 8
IMAGES = Work(96, (6, 6, 3), 16, dtype="uint8", options={"stamped": True})
ROWS = Work(96, (10,), 16, options={"stamped": True})


def make_consumer(work):
    module = importlib.import_module(f"forebay.measure.bench.consumers.{FRAMEWORK}")
    if FRAMEWORK == "tensorflow":
        return module.TensorflowConsumer((work.batch, *work.shape), device="CPU")
    return module.consumer(work)


def make_step(monkeypatch):
    module = importlib.import_module(f"forebay.measure.bench.steps.device_{FRAMEWORK}")
    monkeypatch.setattr(module, "EDGE", EDGE)
    if FRAMEWORK == "jax":
        return module.step()
    return module.TorchStep("cpu") if FRAMEWORK == "torch" else module.TensorflowStep("/CPU:0")


def feed(rows, **options):
    return fb.from_arrays(rows).shuffle(seed=0).batch(16).feed(FRAMEWORK, device="cpu", **options)


def run_batches(delivery, count):
    """So many, one by one: each of these stretches is over before it has begun."""
    return sum(delivery.run(0.0) for _ in range(count))


@pytest.mark.parametrize("work", [IMAGES, ROWS], ids=["images", "rows"])
def test_whole_epochs_arrive_and_add_up(work):
    with feed(array(work)) as feeding:
        delivery = Delivery(lambda: feeding, make_consumer(work), work)
        delivery.first()
        assert run_batches(delivery, 2 * work.batches) == 2 * work.batches


@pytest.mark.parametrize("work", [IMAGES, ROWS], ids=["images", "rows"])
def test_rows_that_are_lost_are_noticed(work):
    rows = array(work)
    with feed(rows[rows.shape[0] // 2 :]) as feeding:
        delivery = Delivery(lambda: feeding, make_consumer(work), work)
        delivery.first()
        with pytest.raises(WrongRowsError, match="an epoch sums to"):
            run_batches(delivery, work.batches)


def test_a_batch_comes_back_as_it_was():
    with feed(array(ROWS)) as feeding:
        batch = next(iter(feeding))
        assert np.array_equal(make_consumer(ROWS).download(batch), np.asarray(batch))


def test_a_step_multiplies_as_often_as_asked(monkeypatch):
    step = make_step(monkeypatch)
    with feed(array(IMAGES)) as feeding:
        batch = next(iter(feeding))
        step.run(batch, 3)
        step.wait()
        pixels = np.asarray(batch).reshape(-1)[: EDGE * EDGE].reshape(EDGE, EDGE).astype(np.float64)
        weights = np.asarray(step._weights, np.float64)
        assert np.allclose(np.asarray(step._hidden), pixels @ weights @ weights @ weights, rtol=1e-2, atol=1e-2)


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU")
def test_a_machine_without_a_gpu_is_skipped():
    with pytest.raises(Skip, match="sees no GPU"):
        require_gpu(FRAMEWORK)

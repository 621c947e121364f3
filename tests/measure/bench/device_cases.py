"""The bench's consumer, which sums batches, and its device step, which multiplies matrices, on the CPU.

`tests/test_framework_cases.py` runs this file once for each framework, in its own process, because frameworks conflict
in one process.
"""

import importlib
import os
from pathlib import Path

import numpy as np
import pytest

import forebay as fb
from forebay.measure.bench.consumers import require_gpu
from forebay.measure.bench.data import make_array
from forebay.measure.bench.device_delivery import Delivery
from forebay.measure.bench.model import Skip, Workload
from forebay.measure.bench.row_ids import WrongRowsError

FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"]
SIZE = 8
IMAGES = Workload(96, (6, 6, 3), 16, dtype="uint8", options={"numbered": True})
ROWS = Workload(96, (10,), 16, options={"numbered": True})


def make_consumer(work):
    module = importlib.import_module(f"forebay.measure.bench.consumers.{FRAMEWORK}")
    if FRAMEWORK == "tensorflow":
        return module.TensorflowConsumer((work.batch, *work.shape), device="CPU")
    return module.make_consumer(work)


def make_step(monkeypatch):
    module = importlib.import_module(f"forebay.measure.bench.steps.{FRAMEWORK}")
    monkeypatch.setattr(module, "MATRIX_SIZE", SIZE)
    if FRAMEWORK == "jax":
        return module.make_step()
    return module.TorchStep("cpu") if FRAMEWORK == "torch" else module.TensorflowStep("/CPU:0")


def feed(rows, **options):
    return fb.from_arrays(rows).shuffle(seed=0).batch(16).feed(FRAMEWORK, device="cpu", **options)


def run_batches(delivery, count):
    """Take this many batches one by one.

    An interval of zero seconds ends after one batch.
    """
    return sum(delivery.run(0.0) for _ in range(count))


@pytest.mark.parametrize("work", [IMAGES, ROWS], ids=["images", "rows"])
def test_whole_epochs_arrive_and_add_up(work):
    with feed(make_array(work)) as running_feed:
        delivery = Delivery(lambda: running_feed, make_consumer(work), work)
        delivery.take_first()
        assert run_batches(delivery, 2 * work.batches) == 2 * work.batches


@pytest.mark.parametrize("work", [IMAGES, ROWS], ids=["images", "rows"])
def test_missing_rows_raise(work):
    rows = make_array(work)
    with feed(rows[rows.shape[0] // 2 :]) as running_feed:
        delivery = Delivery(lambda: running_feed, make_consumer(work), work)
        delivery.take_first()
        with pytest.raises(WrongRowsError, match="an epoch has the sum"):
            run_batches(delivery, work.batches)


def test_a_downloaded_batch_equals_the_batch():
    with feed(make_array(ROWS)) as running_feed:
        batch = next(iter(running_feed))
        assert np.array_equal(make_consumer(ROWS).download(batch), np.asarray(batch))


def test_a_step_multiplies_as_often_as_requested(monkeypatch):
    step = make_step(monkeypatch)
    with feed(make_array(IMAGES)) as running_feed:
        batch = next(iter(running_feed))
        step.run(batch, 3)
        step.wait()
        pixels = np.asarray(batch).reshape(-1)[: SIZE * SIZE].reshape(SIZE, SIZE).astype(np.float64)
        weights = np.asarray(step._weights, np.float64)
        assert np.allclose(np.asarray(step._hidden), pixels @ weights @ weights @ weights, rtol=1e-2, atol=1e-2)


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="the machine has a GPU")
def test_a_machine_without_a_gpu_is_skipped():
    with pytest.raises(Skip, match="sees no GPU"):
        require_gpu(FRAMEWORK)

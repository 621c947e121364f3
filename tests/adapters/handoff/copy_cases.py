"""Devices to which the framework itself copies batches. A numbered CPU replaces a device that this machine lacks.

`tests/test_framework_cases.py` runs this file once for each framework, in its own process.
"""

import importlib
import os

import numpy as np
import pytest
import scipy.sparse

import forebay as fb
from forebay.errors import DeviceError, PipelineError
from forebay.pipeline.target import resolve_target

FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"]
NAMES = {"torch": "PyTorch", "jax": "JAX", "tensorflow": "TensorFlow"}
ROWS = np.random.default_rng(0).random((500, 7)).astype(np.float32)
# The name of the last CPU device. The processes of the cases have two CPU devices of JAX.
LAST = {"torch": "cpu:0", "jax": "cpu:1", "tensorflow": "cpu:0"}[FRAMEWORK]


def make_feed(**options):
    pipeline = fb.from_arrays({"x": ROWS, "row": np.arange(500, dtype=np.int32)}).shuffle(seed=0).batch(32)
    return pipeline.feed(FRAMEWORK, device=LAST, **options)


def test_copies_have_the_right_rows_and_stay_valid():
    with make_feed() as feed:
        kept = [batch for _ in range(3) for batch in feed]
    assert len(kept) == 3 * len(feed)
    for batch in kept:
        np.testing.assert_array_equal(np.asarray(batch["x"]), ROWS[np.asarray(batch["row"])])


def test_explain_says_that_the_framework_copies():
    with make_feed() as feed:
        next(iter(feed))
        assert f"{FRAMEWORK} itself copies each batch to this device" in feed.explain()


def test_copies_are_on_the_device():
    with make_feed() as feed:
        array = next(iter(feed))["x"]
    assert (
        str(array.device).lower().replace("_", ":").endswith(LAST.partition(":")[0] if FRAMEWORK == "torch" else LAST)
    )


def test_a_feed_resumes():
    with make_feed() as feed:
        batches = iter(feed)
        next(batches)
        state = feed.state_dict()
        expected = [np.asarray(batch["row"]) for batch in batches]
    with make_feed() as feed:
        feed.load_state_dict(state)
        actual = [np.asarray(batch["row"]) for batch in feed]
    assert [rows.tolist() for rows in actual] == [rows.tolist() for rows in expected]


@pytest.mark.parametrize("device", ["mps", "xpu", "rocm", "tpu", "mps:3", "hpu", "meta"])
def test_a_missing_device_is_an_error_that_names_the_framework(device):
    with pytest.raises(DeviceError, match=rf"{NAMES[FRAMEWORK]}.*|needs a ROCm build of PyTorch"):
        fb.from_arrays(ROWS).batch(4).feed(FRAMEWORK, device=device)


@pytest.mark.parametrize("options", [{"resident": "always"}, {"device_bytes": "1MiB"}], ids=["resident", "budget"])
def test_options_of_gpus_are_refused(options):
    with pytest.raises(PipelineError, match=r"but the batches go to .*(?i:cpu)"):
        make_feed(**options)


def test_a_device_map_runs_on_the_device():
    pipeline = fb.from_arrays(ROWS).batch(250).map(lambda batch: batch * 2, where="device")
    with pipeline.feed(FRAMEWORK, device=LAST) as feed:
        batches = list(feed)
    assert {str(batch.device) for batch in batches} == {str(next(iter(make_feed()))["x"].device)}
    np.testing.assert_array_equal(np.concatenate(batches), ROWS * 2)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_sparse_batches_are_copied():
    matrix = scipy.sparse.random_array((50, 20), density=0.1, format="csr", dtype=np.float32, rng=0)
    with fb.from_arrays(matrix).batch(50, sparse=True).feed(FRAMEWORK, device=LAST) as feed:
        batch = next(iter(feed))
    dense = {
        "torch": lambda: batch.to_dense(),
        "jax": lambda: batch.todense(),
        "tensorflow": lambda: importlib.import_module("tensorflow").sparse.to_dense(batch),
    }
    np.testing.assert_array_equal(np.asarray(dense[FRAMEWORK]()), matrix.toarray())


def test_auto_selects_an_accelerator_of_the_framework(monkeypatch):
    module = importlib.import_module(f"forebay.adapters.handoff.{FRAMEWORK}_copy")
    make = module.make_copy_hand_off
    monkeypatch.setattr(module, "make_copy_hand_off", lambda device: make(LAST if device == "auto" else device))
    target = resolve_target("auto", FRAMEWORK)
    assert "itself copies each batch" in target.decisions[0].why


def test_auto_selects_the_cpu_without_an_accelerator():
    assert resolve_target("auto", FRAMEWORK).place == "the CPU"

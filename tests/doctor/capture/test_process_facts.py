"""The facts of a process, with stand-ins for frameworks."""

import sys
from types import SimpleNamespace

import pytest

from forebay.doctor.capture.process_facts import process_facts


def refuse(*_):
    raise AssertionError("this would initialise the GPU")


@pytest.fixture
def tensorflow(monkeypatch):
    """A stand-in for TensorFlow that finds one GPU and has not initialised it."""
    config = SimpleNamespace(
        list_physical_devices=lambda kind: ["GPU:0"],
        threading=SimpleNamespace(
            get_intra_op_parallelism_threads=lambda: 0, get_inter_op_parallelism_threads=lambda: 0
        ),
        functions_run_eagerly=lambda: False,
        experimental=SimpleNamespace(get_memory_info=refuse),
    )
    for name in ("torch", "jax", "cupy", "keras"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(config=config))
    context = SimpleNamespace(_initialized=False)
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", SimpleNamespace(context_safe=lambda: context))
    return config


def test_the_backend_of_keras_is_recorded(monkeypatch):
    keras = SimpleNamespace(backend=SimpleNamespace(backend=lambda: "jax"))
    monkeypatch.setitem(sys.modules, "keras", keras)
    assert process_facts()["keras_backend"] == "jax"


def test_a_gpu_that_tensorflow_has_not_initialised_stays_uninitialised(tensorflow):
    assert process_facts()["frameworks"] == {
        "tensorflow": {"gpus": 1, "intra_threads": 0, "inter_threads": 0, "run_eagerly": False}
    }

"""Names of calls, devices and dtypes in the spelling of every framework."""

import pytest
from tests.doctor.captures import JAX, TENSORFLOW, TORCH, batch, happening, loop, ops, run, upload

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.framework import (
    array_framework,
    dtype_bits,
    feed_framework,
    framework_of,
    is_device,
    step_framework,
)
from forebay.doctor.model.events import EventKind


@pytest.mark.parametrize(
    ("api", "loaded", "framework"),
    [
        ("tf.convert_to_tensor", TENSORFLOW, "tensorflow"),
        ("Tensor.item", TORCH, "torch"),
        ("Tensor.numpy", TENSORFLOW, "tensorflow"),
        ("float(array)", JAX, "jax"),
        ("train_step(x)", JAX, "jax"),
        ("jnp.asarray", TORCH | JAX, "jax"),
        ("float(tensor)", TORCH | JAX, "torch"),
        ("cupy.asarray", TORCH, "cupy"),
        ("", {"tensorflow": {}}, "tensorflow"),
    ],
)
def test_the_framework_of_a_call_is_found_by_its_name(api, loaded, framework):
    assert framework_of(CaptureView(loop(frameworks=loaded)), api) == framework


def test_a_loop_inside_fit_belongs_to_keras():
    view = CaptureView(loop(batch("Model.fit"), frameworks=TENSORFLOW))
    assert feed_framework(view, "tf.constant") == "keras"
    assert array_framework(view, "Model.fit") == "tensorflow"


@pytest.mark.parametrize(
    ("consumers", "framework"),
    [
        ([run("jax.jit"), upload("jax.jit: step(x)")], "jax"),
        ([upload("cupy.asarray")], "cupy"),
        ([run("jax.jit"), upload("torch.tensor")], "torch"),
        ([], "torch"),
    ],
)
def test_a_feed_hands_its_batches_to_the_framework_that_computes_with_them(consumers, framework):
    view = CaptureView(loop(batch("DataLoader"), *consumers, marked=False, frameworks=TORCH | JAX))
    assert feed_framework(view, "DataLoader") == framework


@pytest.mark.parametrize(
    ("happenings", "framework"),
    [
        ([happening(EventKind.STEP, "optimizer.step"), ops(90, 8, "jax operations")], "torch"),
        ([happening(EventKind.STEP, "Model.fit"), run("tf.function")], "jax"),
        ([happening(EventKind.STEP, "Optimizer.apply"), run("tf.function")], "jax"),
        ([happening(EventKind.STEP, "Optimizer.apply_gradients"), run("jax.jit", 3)], "tensorflow"),
        ([run("tf.function", 1), run("jax.jit", 3)], "jax"),
        ([run("compiled function", 3), run("jax.jit", 1)], "torch"),
        ([run("Session.run", 3), run("jax.jit", 1)], "tensorflow"),
        ([batch("DataLoader", 5), ops(90, 3, "tf operations")], "tensorflow"),
        ([upload("jnp.asarray")], "jax"),
        ([batch("generator")], "torch"),
    ],
)
def test_the_framework_of_the_steps_is_the_one_that_computes_them(happenings, framework):
    loaded = TORCH | TENSORFLOW | JAX
    view = CaptureView(loop(*happenings, marked=False, frameworks=loaded, facts={"keras_backend": "jax"}))
    assert step_framework(view) == framework


@pytest.mark.parametrize(("facts", "framework"), [({"keras_backend": "jax"}, "jax"), ({}, "tensorflow")])
def test_arrays_of_keras_belong_to_its_backend(facts, framework):
    view = CaptureView(loop(batch("Model.fit"), frameworks=TENSORFLOW | JAX, facts=facts))
    assert array_framework(view, "Model.fit") == framework


@pytest.mark.parametrize(
    "name", ["cuda:0", "GPU:0", "/job:localhost/replica:0/task:0/device:GPU:0", "gpu:0,1", "mps:0"]
)
def test_a_device_name_is_recognized(name):
    assert is_device(name)


@pytest.mark.parametrize(
    "name", ["cpu", "CPU:0", "/job:localhost/replica:0/task:0/device:CPU:0", "TFRT_CPU_0", "", None]
)
def test_a_host_name_is_not_a_device(name):
    assert not is_device(name)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("torch.float64", ("float", 64)),
        ("<dtype: 'uint8'>", ("uint", 8)),
        ("bfloat16", ("bfloat", 16)),
        ("list", None),
        ("", None),
        (None, None),
    ],
)
def test_a_dtype_has_a_family_and_a_width_in_bits(dtype, bits):
    assert dtype_bits(dtype) == bits

"""Edits of objects that a loop builds in every step, and of arguments that make functions compile again."""

import pytest
from tests.doctor.applied_cures import apply_cure
from tests.doctor.rules.edited_code import code_after

from forebay.doctor.rules.build_edits import build_once, call_on_batch, keep_iterator, pass_arrays, pass_constants


def test_objects_and_iterators_are_built_once():
    assert code_after("for i in r:\n    f = tf.function(g)\n    f()", 2, build_once).startswith(
        "# before line 1:\nf = "
    )
    assert code_after("for i in r:\n    f = make(i)\n    f()", 2, build_once) == ""
    text = code_after("for i in r:\n    x = next(iter(DataLoader(d)))\n", 2, keep_iterator)
    assert "batches = endless(DataLoader(d))" in text
    assert "x = next(batches)" in text


def test_numbers_are_passed_as_arrays_and_are_no_longer_static():
    source = (
        '@partial(jax.jit, static_argnames="r")\ndef step(w, r):\n    return w\nfor i in s:\n    step(w, r=1 / i)\n'
    )
    text = code_after(source, 5, pass_arrays, "jax")
    assert "@partial(jax.jit)" in text
    assert "step(w, r=jnp.float32(1 / i))" in text


def test_a_global_array_becomes_an_argument():
    source = (
        "import tensorflow as tf\nt = np.ones(9)\n@tf.function\ndef f(i):\n    return t[i]\nfor i in r:\n    f(i)\n"
    )
    text = apply_cure(source, code_after(source, 7, pass_constants, "tensorflow"))
    assert "def f(t, i):" in text
    assert "t_on_device = tf.constant(t)\nfor i in r:\n    f(t_on_device, i)" in text


TABLE = "import jax.numpy as jnp\nt = np.ones(9)\n@jax.jit\ndef f({}):\n    return {}\nfor i in r:\n    f({})\n"


@pytest.mark.parametrize(
    ("parameters", "new_parameters", "arguments", "new_arguments"),
    [
        ("", "t", "", "t_on_device"),
        ("*xs", "t, *xs", "i", "t_on_device, i"),
        ("*, x", "t, *, x", "x=i", "t_on_device, x=i"),
        ("x, /, **options", "t, x, /, **options", "i", "t_on_device, i"),
        ("x=0", "t, x=0", "", "t_on_device"),
    ],
)
def test_a_new_first_argument_suits_all_kinds_of_parameters(parameters, new_parameters, arguments, new_arguments):
    source = TABLE.format(parameters, "t * 2", arguments)
    text = apply_cure(source, code_after(source, 7, pass_constants, "jax"))
    assert f"def f({new_parameters}):" in text
    assert f"    f({new_arguments})\n" in text
    compile(text, "cured", "exec")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@jax.jit", "@partial(jax.jit, static_argnums=1)"),
        ("@jax.jit", "@jax.jit(donate_argnums=0)"),
        ("@jax.jit", "@partial(jax.vmap)"),
        ("t * x", "np.take(t, 1) * x"),
        ("t * x", "x * int(t[0])"),
        ("t * x", "t.astype(int) * x"),
        ("t * x", "x if t[0] else t"),
        ("    f(i)", "    f(i); t[0] += 1"),
        ("    f(i)", "    f(i); jax.grad(f)"),
        ("    f(i)", "    model.f(i)"),
    ],
)
def test_an_array_that_cannot_be_an_argument_stays_global(old, new):
    source = TABLE.format("x", "t * x", "i")
    assert code_after(source, 7, pass_constants, "jax")
    assert code_after(source.replace(old, new), 7, pass_constants, "jax") == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model.fit(x, y, epochs=1, verbose=0)", "model.train_on_batch(x, y)"),
        ("self.model.fit(x, y, sample_weight=w)", "self.model.train_on_batch(x, y, sample_weight=w)"),
        ("best = np.amax(model.predict(x, verbose=0)[0])", "best = np.amax(model.predict_on_batch(x)[0])"),
        ("model.evaluate(x, y)", "model.test_on_batch(x, y)"),
    ],
)
def test_a_call_of_keras_on_one_batch_needs_no_pipeline(before, after):
    assert code_after(f"for x, y in d:\n    {before}\n", 2, call_on_batch) == f"# instead of line 2:\n{after}"


@pytest.mark.parametrize(
    "call",
    [
        "history = model.fit(x, y)",
        "model.fit(x, y, epochs=3)",
        "model.fit(x, y, callbacks=[c])",
        "model.fit(x, y, 32)",
        "f(model.predict(x), model.predict(y))",
        "losses.append(model.fit(x, y).history['loss'])",
        "print(model.evaluate(x, y))",
        "y = model.predict(x, 32)",
        "f(x)",
    ],
)
def test_a_call_of_keras_that_needs_a_pipeline_stays(call):
    assert code_after(f"for x, y in d:\n    {call}\n", 2, call_on_batch) == ""

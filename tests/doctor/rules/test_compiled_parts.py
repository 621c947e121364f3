"""A cure that compiles a part of the step promises only the gain of the code that it compiles."""

import pytest
from tests.doctor.captures import jax_loop, ops, tensorflow_loop

from forebay.doctor.diagnosis.diagnose import diagnose

PART = """def loss(w, x):
    return jnp.tanh(x @ w)
for x in rows:
    w = loss(w, x)
    model.w = w + next(noise)"""
WHOLE = PART.replace("model.w = w + next(noise)", "w = w + x")


def compile_cure(source, make, *lines):
    """Return the cure of `eager` for a script with equal operations on these lines. The script begins with line 10."""
    texts = [[10 + index, text] for index, text in enumerate(source.split("\n"))]
    facts = {"script": {"files": [{"file": "train.py", "lines": texts}]}}
    api = "jax operations" if make is jax_loop else "tf.ops"
    capture = make(*(ops(60, 4, api, line=line, calling_seconds=3e-3) for line in lines), facts=facts)
    (finding,) = [finding for finding in diagnose(capture).findings if finding.rule == "eager"]
    return finding.best_cure


def test_operations_outside_of_the_compiled_part_remain():
    part, whole = compile_cure(PART, jax_loop, 11, 14), compile_cure(WHOLE, jax_loop, 11, 14)
    assert (part.title, whole.title) == ("compile a part of the step", "compile the step")
    assert "60 of 120 calls become one; the others remain" in part.basis
    assert part.high == pytest.approx(whole.high / 2, rel=0.05)
    assert "    w = w + x\n" in whole.code
    assert "noise" not in part.code


def test_a_decorated_function_covers_the_functions_that_it_calls():
    step = "def inner(x):\n    return x * x\ndef step(x):\n    return inner(x) + 1\n"
    source = f"{step}for x in rows:\n    step(x)\n    y = x - 1"
    assert compile_cure(source, tensorflow_loop, 11, 13).title == "compile the step"
    assert compile_cure(source, tensorflow_loop, 11, 16).title == "compile a part of the step"


def test_code_that_fits_any_script_compiles_the_step():
    cure = compile_cure("for x in rows:\n    model.w = next(noise)", jax_loop, 11)
    assert (cure.title, cure.code.split("\n")[0]) == ("compile the step", "@jax.jit")

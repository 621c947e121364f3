"""Joins of NumPy arrays move from a framework to NumPy, and keep the arguments of the script."""

import pytest
from tests.doctor.applied_cures import apply_cure
from tests.doctor.captures import jax_loop, script, upload
from tests.doctor.rules.edited_code import code_after

from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.rules.join_edits import is_only_passed_on, join_with_numpy

BATCHES = """import numpy as np
@jax.jit
def train(xb, yb):
    return xb + yb
def get_batch(split):
    ix = [3, 5]
    x = jnp.stack([data[i:i+8] for i in ix])
    y = jnp.stack([data[i+1:i+9] for i in ix])
    return x, y
for step in range(9):
    xb, yb = get_batch("train")
    loss = train(xb, yb)
"""


def joined(call, *, converts=True, head="import numpy as np\n"):
    source = f"{head}x = {call}\n"
    code = code_after(source, source.count("\n"), join_with_numpy, converts=converts)
    return apply_cure(source, code).removeprefix(head).strip() if code else ""


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("jnp.stack([a[i] for i in ix])", "jnp.asarray(np.stack([a[i] for i in ix]))"),
        ("jnp.concatenate(rows, axis=1)", "jnp.asarray(np.concatenate(rows, axis=1))"),
        ("jnp.asarray(rows, dtype=jnp.float32)", "jnp.asarray(np.stack(rows), dtype=jnp.float32)"),
        ("torch.tensor([a, b], device=gpu)", "torch.tensor(np.stack([a, b]), device=gpu)"),
        ("tf.stack(rows, axis=1)", "tf.convert_to_tensor(np.stack(rows, axis=1))"),
        ("tf.constant(rows)", "tf.constant(np.stack(rows))"),
        ("keras.ops.stack(rows)", "keras.ops.convert_to_tensor(np.stack(rows))"),
    ],
)
def test_numpy_joins_the_arrays_and_the_framework_converts_the_result(call, wanted):
    assert joined(call) == f"x = {wanted}"


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("jnp.stack([a[i] for i in ix])", "np.stack([a[i] for i in ix])"),
        ("jnp.array(rows)", "np.stack(rows)"),
    ],
)
def test_the_result_may_remain_a_numpy_array(call, wanted):
    assert joined(call, converts=False) == f"x = {wanted}"


@pytest.mark.parametrize(
    "call",
    [
        "np.stack(rows)",  # NumPy joins them already
        "stack(rows)",  # the module is unknown
        "jnp.stack(rows, dtype=jnp.int32)",  # NumPy may refuse the cast
        "tf.stack(rows, name='x')",  # NumPy has no such argument
        "jnp.stack(make())",  # the arrays may be on the device in another step
        "jnp.stack(a), jnp.stack(b)",  # two joins in one statement
    ],
)
def test_other_calls_are_left_alone(call):
    assert joined(call) == ""


def test_numpy_is_imported_outside_of_the_function():
    source = "import jax.numpy as jnp\ndef f(rows):\n    return jnp.stack(rows)\n"
    assert apply_cure(source, code_after(source, 3, join_with_numpy, converts=True)) == (
        "import jax.numpy as jnp\nimport numpy as np\ndef f(rows):\n    return jnp.asarray(np.stack(rows))\n"
    )


def test_a_batch_that_only_compiled_functions_get_may_remain_a_numpy_array():
    assert is_only_passed_on(ScriptCode(BATCHES), 7)
    assert is_only_passed_on(ScriptCode(BATCHES), 8)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@jax.jit\n", ""),  # the function may need arrays of JAX
        ("loss = train(xb, yb)", "loss = train(xb.at[0].set(1), yb)"),  # NumPy arrays have no such attribute
        ("loss = train(xb, yb)", "loss = train(xb / 255, yb)"),  # NumPy may compute in another dtype
        ("loss = train(xb, yb)", "loss = jax.grad(train)(xb, yb)"),  # what `grad` gets may not be jitted
        ("loss = train(xb, yb)", "out.append(xb); loss = train(xb, yb)"),  # what uses the list is unknown
        ("loss = train(xb, yb)", "f = lambda: xb.at[0]; loss = train(xb, yb)"),
        ("xb, yb = get_batch", "batch = get_batch"),  # what uses the batch is unknown
        ("stack([data[i:i+8] for i in ix])", "stack([data[i:i+8] for i in ix]) + 1"),
    ],
)
def test_a_batch_with_another_use_becomes_an_array_of_the_framework(old, new):
    source = BATCHES.replace(old, new)
    number = 1 + [line.strip().startswith("x = ") for line in source.split("\n")].index(True)
    assert not is_only_passed_on(ScriptCode(source), number)


def test_lines_that_join_arrays_are_one_finding_with_the_code_of_all():
    capture = jax_loop(
        upload("jnp.stack", 4, line=7, nbytes=128, pieces=4),
        upload("jnp.stack", 4, line=8, nbytes=128, pieces=4),
        facts=script(*BATCHES.split("\n")) | {"other_cores": 0.0},
    )
    finding = diagnose(capture).main
    assert (finding.rule, finding.line.number, len(finding.cures)) == ("conversion_in_loop", 7, 2)
    assert finding.seconds == pytest.approx(8e-3)
    assert finding.best_cure.code == (
        "# instead of line 7:\nx = np.stack([data[i:i+8] for i in ix])\n"
        "# instead of line 8:\ny = np.stack([data[i+1:i+9] for i in ix])"
    )
    assert 7.7e-3 < finding.best_cure.low <= finding.best_cure.high < 8e-3

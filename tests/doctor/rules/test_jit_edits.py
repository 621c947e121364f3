"""Statements of a loop of JAX move into a jitted function only if JAX can trace them."""

import pytest
from tests.doctor.applied_cures import apply_cure

from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.rules.edits import format_edits
from forebay.doctor.rules.jit_edits import jit_statements
from forebay.doctor.rules.nnx_modules import cache_modules

START = "import jax\nimport jax.numpy as jnp\n"


def jitted(source, *lines):
    """Return the script with a jitted function of the statements on these lines of its loop; "" without an edit."""
    code = ScriptCode(source)
    loop = code.loops_around(code.statement_at(lines[0]))[0]
    edits = jit_statements(code, loop, set(lines))
    return apply_cure(source, format_edits(edits)) if edits else ""


def body(text):
    """Return a script with these statements in a loop. They begin at line 6."""
    statements = "\n".join(f"    {line}" for line in text.split("\n"))
    return f"{START}xs = jnp.ones(8)\nw = v = 0.0\nfor i in range(9):\n{statements}\nprint(w)\n"


def test_arrays_that_the_loop_changes_become_parameters_and_results():
    assert jitted(body("g = jnp.tanh(w + v)\nv = 0.9 * v - g\nw += v"), 6, 7) == (
        f"{START}xs = jnp.ones(8)\nw = v = 0.0\n"
        "@jax.jit\ndef train_step(w, v):\n    g = jnp.tanh(w + v)\n    v = 0.9 * v - g\n    return v\n"
        "for i in range(9):\n    v = train_step(w, v)\n    w += v\nprint(w)\n"
    )


def test_an_update_in_place_belongs_to_the_step():
    text = jitted(body("v = 0.9 * v - jnp.tanh(w)\nw += v"), 6, 7)
    assert "    return v, w\nfor i in range(9):\n    v, w = train_step(v, w)\n" in text


def test_arrays_of_the_script_are_parameters_and_functions_are_not():
    text = jitted(START + "xs = jnp.ones(8)\nf = jax.jit(jnp.sum)\nw = 0.0\nfor i in range(9):\n    w = w + f(xs)\n", 7)
    assert "def train_step(w, xs):\n    w = w + f(xs)\n" in text


def test_statements_beside_the_block_stay_in_the_loop():
    text = jitted(body("rows = xs[i : i + 2]\nw = w + jnp.sum(rows)\nprint(w)"), 6, 7)
    assert "    rows = xs[i : i + 2]\n    w = train_step(w, rows)\n    print(w)\n" in text


def test_a_value_is_computed_by_the_function_and_read_after_its_call():
    text = jitted(body("p = jnp.tanh(w)\nw = int(jnp.argmax(p))\nprint(w)"), 6, 7)
    assert "    p = jnp.tanh(w)\n    w = jnp.argmax(p)\n    return w\n" in text
    assert "for i in range(9):\n    w = train_step(w)\n    w = int(w)\n    print(w)\n" in text


def test_the_function_goes_before_the_outermost_loop_of_the_script():
    source = START + "w = 0.0\nfor epoch in range(2):\n    for i in range(9):\n        w = jnp.tanh(w)\n"
    assert jitted(source, 6).startswith(START + "w = 0.0\n@jax.jit\ndef train_step(w):\n    w = jnp.tanh(w)\n")


@pytest.mark.parametrize(
    "statement",
    [
        "w = float(jnp.tanh(w))",  # a value of the host
        "w = table[w]",  # perhaps an array of NumPy, which a traced index cannot index
        "w = env.step(w)",  # a method of any object
        "w = jnp.tanh(w) if w > 0 else w",  # a branch on a traced value
        "w = xs[: w + 1]",  # a shape that depends on a value
        "w = jax.device_get(jnp.tanh(w))",
        "model.w = jnp.tanh(w)",
        "w = w + jnp.arange(i).sum()",  # a size that depends on a value
        "w = w + jnp.zeros((2, sizes[i])).sum()",
        "w = lookup(w)",  # a function that reads a value on the host
        "w = update(w)",  # a function of Flax that changes modules
    ],
)
def test_a_statement_that_jax_cannot_trace_is_not_jitted(statement):
    functions = "def lookup(w):\n    return rows[int(w)]\n@nnx.jit\ndef update(w):\n    return w\n"
    assert jitted(f"{START}{functions}xs = jnp.ones(8)\nfor i in range(9):\n    {statement}\nprint(w)\n", 10) == ""


def test_a_size_that_jax_knows_is_jitted():
    assert "@jax.jit" in jitted(body("v = w + jnp.zeros(v.shape[0]) + jnp.ones(len(xs))\nw = jnp.tanh(v)"), 6, 7)


def cached(source, number):
    edits = cache_modules(ScriptCode(source), number)
    return apply_cure(source, format_edits(edits)) if edits else ""


def test_modules_are_taken_apart_before_all_loops():
    head = "@nnx.jit\ndef step(model, opt, x): ...\n"
    loops = "for epoch in range(3):\n    for x in xs:\n        loss = step(model, opt, x, flag=True)\n"
    assert cached(head + loops, 5) == (
        f"{head}cached_step = nnx.cached_partial(step, model, opt)\n"
        "for epoch in range(3):\n    for x in xs:\n        loss = cached_step(x, flag=True)\n"
    )


@pytest.mark.parametrize(
    ("decorator", "call"),
    [
        ("@nnx.jit", "model = step(model, x)"),  # the loop makes new modules
        ("@nnx.jit", "step(x, model)"),  # only first arguments can be cached
        ("@nnx.jit", "step(models[0], x)"),
        ("@jax.jit", "step(model, x)"),
    ],
)
def test_calls_without_constant_modules_are_not_cached(decorator, call):
    assert cached(f"{decorator}\ndef step(model, x): ...\nfor x in xs:\n    {call}\n", 4) == ""


def test_a_function_that_the_script_jits_later_is_cached():
    source = "step = nnx.jit(train, donate_argnums=0)\nfor x in xs:\n    step(model, x)\n"
    assert "cached_step = nnx.cached_partial(step, model)\nfor x in xs:\n    cached_step(x)\n" in cached(source, 3)


def test_converted_data_becomes_a_parameter():
    text = jitted(body("batch = jnp.asarray(data)[rows]\nw = w - batch\n"), 6, 7)
    assert "def train_step(data, w):" in text  # `rows` never changes, so it may be a constant


def test_nothing_is_moved_if_most_operations_would_stay():
    source = body("rows = xs[i : i + 2]\nprint(rows)\ncolumns = ys[i : i + 2]\nw = w + jnp.sum(rows)\n")
    assert jitted(source, 6, 8, 9) == ""


def test_rows_of_a_numpy_array_are_selected_before_the_call():
    loop = "idx = draw(i)\ng = jax.grad(loss)(w, rows[idx], ys[idx + 1])\nw = w - 0.1 * g"
    text = jitted(body(loop), 7, 8)
    assert "def train_step(w, rows_batch, ys_batch):\n    g = jax.grad(loss)(w, rows_batch, ys_batch)\n" in text
    assert "    idx = draw(i)\n    w = train_step(w, rows[idx], ys[idx + 1])\nprint(w)\n" in text


def test_two_parts_of_one_array_are_two_parameters():
    text = jitted(body("w = w + jnp.sum(zs[i]) * jnp.sum(zs[i]) - zs[i + 1]"), 6)
    assert (
        "def train_step(w, zs_batch, zs_batch2):\n    w = w + jnp.sum(zs_batch) * jnp.sum(zs_batch) - zs_batch2" in text
    )
    assert "    w = train_step(w, zs[i], zs[i + 1])\n" in text


def test_a_part_whose_index_the_function_would_compute_starts_a_new_function():
    text = jitted(body("k = jnp.argmax(w)\nw = w + jnp.sum(table[k])\nw = jnp.tanh(w)"), 7, 8)
    assert "    k = jnp.argmax(w)\n    w = train_step(w, table[k])\n" in text

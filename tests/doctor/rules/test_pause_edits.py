"""Edits of rare long steps, of debug calls and of single statements keep the rest of the script."""

import pytest
from tests.doctor.applied_cures import apply_cure
from tests.doctor.rules.edited_code import code_after

from forebay.doctor.rules.compile_edits import compile_statement
from forebay.doctor.rules.pause_edits import remove_expression, run_less_often

SAVING = """def save(path):
    torch.save({"w": w}, path)
for step in range(90):
    w = train(w)
    if step % 20 == 19:
        save("w.pt")
print(w)
"""


@pytest.mark.parametrize("number", [5, 6])
def test_a_condition_on_the_step_number_gets_a_longer_period(number):
    assert apply_cure(SAVING, code_after(SAVING, number, run_less_often, 20, 10)) == SAVING.replace("20", "200")


def test_a_period_with_a_name_becomes_longer_for_this_condition_only():
    source = "EVERY = 20\nfor step in range(90):\n    if step % EVERY == 0:\n        save(step)\n"
    expected = source.replace("% EVERY", "% (10 * EVERY)")
    assert apply_cure(source, code_after(source, 4, run_less_often, 20, 10)) == expected


@pytest.mark.parametrize("work", ["rate = rate / 2", "scheduler.step()"])
def test_a_condition_that_also_controls_the_training_keeps_its_period(work):
    source = f"for step in range(90):\n    if step % 20 == 0:\n        {work}\n        save(step)\n    train(rate)\n"
    text = apply_cure(source, code_after(source, 4, run_less_often, 20, 10))
    assert f"step % 20 == 0:\n        {work}\n        calls += 1\n        if calls % 10 == 0:\n" in text


@pytest.mark.parametrize(
    ("source", "saved"),
    [
        ("for step in range(90):\n    if step not in (7, 9):\n        save(step)\n", 8),
        ("for step in range(90):\n    save(step)\n", 9),
    ],
)
def test_a_line_without_a_period_of_its_own_gets_a_counter(source, saved):
    number = len(source.strip().split("\n"))
    found = []
    exec(apply_cure(source, code_after(source, number, run_less_often, 0, 10)), {"save": found.append})
    assert len(found) == saved


def test_a_debug_call_is_removed_and_a_used_result_is_not():
    source = "def step(w):\n    jax.debug.print('{}', w)\n    return w\n"
    assert apply_cure(source, code_after(source, 2, remove_expression)) == "def step(w):\n    return w\n"
    assert code_after("value = tf.py_function(f, [w], tf.float32)\n", 1, remove_expression) == ""


def test_the_value_of_one_statement_is_computed_by_a_compiled_function():
    source = "import tensorflow as tf\nfor x in data:\n    g = sum(row * w + x for row in tf.unstack(rows))\n"
    assert apply_cure(source, code_after(source, 3, compile_statement)) == (
        "import tensorflow as tf\n@tf.function\ndef compute(x):\n"
        "    return sum(row * w + x for row in tf.unstack(rows))\nfor x in data:\n    g = compute(x)\n"
    )


def test_a_statement_that_reads_a_value_is_not_compiled():
    source = "for x in data:\n    g = sum(float(row) for row in tf.unstack(x))\n"
    assert code_after(source, 2, compile_statement) == ""


@pytest.mark.parametrize(
    "script",
    [
        "for i in range(9):\n    y = tf.sin(w * i)",  # TensorFlow would trace again for each number
        "for i, x in enumerate(data):\n    y = tf.sin(x * i)",
        "for x in data:\n    t += 0.1\n    y = tf.sin(x * t)",
        "x = np.ones(9)\nfor i in it:\n    b = x[i : i + 4]\n    y = tf.sin(w * b)",  # float64 only as an argument
        "for x in data:\n    with tf.GradientTape() as tape:\n        loss = f(x)\n    y = tape.gradient(loss, w)",
        "for x in data:\n    y = tf.sin(x) + np.random.rand()",  # the number would be a constant
        "def f(x):\n    return x.numpy()\nfor x in data:\n    y = f(x) + f(x)",
    ],
)
def test_a_statement_that_needs_values_of_the_host_is_not_compiled(script):
    number = 1 + script[: script.index("    y = ")].count("\n")
    assert code_after(script, number, compile_statement) == ""

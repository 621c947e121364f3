"""Edits take into account what the functions of the script change and use."""

from functools import partial

import pytest
from tests.doctor.rules.edited_code import code_after

from forebay.doctor.rules import placement_edits
from forebay.doctor.rules.batch_edits import feed_of_loop
from forebay.doctor.rules.build_edits import pass_arrays, pass_constants
from forebay.doctor.rules.compile_edits import compile_function
from forebay.doctor.rules.fit_edits import feed_of_fit
from forebay.doctor.rules.function_edits import prefetch_call
from forebay.doctor.rules.input_edits import change_loader, feed_of_batches
from forebay.doctor.rules.jit_edits import jit_statements
from forebay.doctor.rules.loop_edits import keep_arrays_on_device
from forebay.doctor.rules.pin_edits import pin_array
from forebay.doctor.rules.read_edits import read_few_times, receive_later
from forebay.doctor.rules.step_edits import every_nth_step

MADE = """import numpy as np
scale = np.ones(1)
def make(i):
    return rng.normal(size=4) * scale
def anneal():
    {}
for i in range(9):
    x = {}
    step(jnp.asarray(x))
    {}
"""


@pytest.mark.parametrize(
    ("in_function", "data", "last"),
    [
        ("scale[0] *= 0.9", "np.ones(4) * scale", "anneal()"),
        ("global scale; scale = scale * 0.9", "np.ones(4) * scale", "anneal()"),
        ("scale[0] *= 0.9", "make(i)", "anneal()"),
        ("pass", "make(i)", "scale = scale * 0.9"),
    ],
)
def test_a_feed_makes_no_batches_from_what_a_step_changes(in_function, data, last):
    make = partial(feed_of_loop, framework="jax")
    assert code_after(MADE.format("pass", data, "anneal()"), 9, make)
    assert code_after(MADE.format(in_function, data, last), 9, make) == ""


FETCHED = """position = 0
def advance():
    {}
def get_batch():
    return data[position : position + 4]
for i in range(9):
    x = get_batch()
    train(x)
    advance()
"""


def test_a_thread_makes_no_batch_from_a_name_that_another_function_assigns():
    assert code_after(FETCHED.format("pass"), 5, prefetch_call)
    assert code_after(FETCHED.format("global position; position += 4"), 5, prefetch_call) == ""


EPOCHS = """import numpy as np
x = np.ones((8, 4), "float32")
def shuffle_rows(rows):
    rng.shuffle(rows)
for epoch in range(3):
    {}
    for i in range(0, len(x), 4):
        a = torch.from_numpy(x[i : i + 4]).cuda()
        {}
        train(a)
"""


@pytest.mark.parametrize("make", [partial(keep_arrays_on_device, framework="torch"), pin_array])
def test_an_array_that_a_function_shuffles_is_not_prepared_before_the_loop(make):
    assert code_after(EPOCHS.format("pass", "pass"), 8, make)
    assert code_after(EPOCHS.format("shuffle_rows(x)", "pass"), 8, make) == ""


@pytest.mark.parametrize(
    ("conversion", "change"),
    [
        ("torch.from_numpy(x[i : i + 4]).cuda()", "a += 1"),
        ("torch.from_numpy(x[i : i + 4]).cuda()", "a.mul_(2)"),
        ("torch.from_numpy(x[i : i + 4]).cuda()", "shuffle_rows(a)"),
        ("torch.tensor(x[i : i + 4], requires_grad=True)", "pass"),
    ],
)
def test_a_slice_that_a_step_changes_is_no_view_of_the_whole_array(conversion, change):
    source = EPOCHS.format("pass", change).replace("torch.from_numpy(x[i : i + 4]).cuda()", conversion)
    assert code_after(source, 8, keep_arrays_on_device, "torch") == ""


@pytest.mark.parametrize("change", ["x = np.load(name)", "np.random.shuffle(x)", "shuffle_rows(x)"])
def test_a_feed_of_arrays_that_change_per_epoch_is_made_per_epoch(change):
    code = code_after(EPOCHS.format(change, "pass"), 8, feed_of_loop, "torch")
    assert "from_arrays" not in code
    assert code.startswith("# before line 7:")
    assert "feed.close()" in code


def test_a_list_that_each_epoch_shuffles_gets_no_feed():
    source = "for epoch in range(3):\n    {}\n    for x in batches:\n        train(x)\n"
    assert code_after(source.format("pass"), 3, feed_of_batches, "torch")
    assert code_after(source.format("random.shuffle(batches)"), 3, feed_of_batches, "torch") == ""


def test_two_statements_of_one_line_get_no_edits():
    pair = "a = torch.tensor(x[i : i + 4]); b = torch.tensor(y[i : i + 4])"
    source = f"import numpy as np\nx = y = np.ones(8)\nfor i in range(0, 8, 4):\n    {pair}\n    train(a, b)\n"
    assert code_after(source.replace("; ", "\n    "), 4, feed_of_loop, "torch")
    with pytest.raises(ValueError, match="replace line 4"):
        code_after(source, 4, feed_of_loop, "torch")


SUM = "for i in range(9):\n    total += {}\n"


@pytest.mark.parametrize("value", ["[float(loss)]", "str(float(loss))", "'%s' % float(loss)", "round(float(loss), 4)"])
def test_only_a_sum_of_numbers_stays_on_the_device(value):
    assert code_after(SUM.format("0.5 * -float(loss)"), 2, read_few_times, "jax")
    assert code_after(SUM.format(value), 2, read_few_times, "jax") == ""


@pytest.mark.parametrize("make", [partial(read_few_times, framework="torch"), every_nth_step])
@pytest.mark.parametrize("use", ["train(rows)", "learn()"])
def test_a_step_keeps_all_rows_that_it_adds_to_a_container_of_the_loop(make, use):
    source = "for i in range(9):\n    rows.append((a.item(), b.item()))\n    {}\ndef learn():\n    train(rows)\n"
    assert code_after(source.format("pass"), 2, make)
    assert code_after(source.format(use), 2, make) == ""


STEP = """import jax
rate = 0.1
def step(w, x):
    return {}
for x in data:
    w = step(w, x)
    {}
"""


@pytest.mark.parametrize(
    ("result", "last"),
    [
        ("w - rate * x", "rate *= 0.9"),
        ("w - np.random.normal(size=3) * x", "pass"),
        ("np.dot(w, x)", "pass"),
    ],
)
@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_a_compiled_step_keeps_no_values_of_its_first_call(result, last, framework):
    is_of_jax_only = result.startswith("np.dot")
    assert code_after(STEP.format("w - rate * x", "pass"), 4, compile_function, framework)
    code = code_after(STEP.format(result, last), 4, compile_function, framework)
    assert bool(code) == (is_of_jax_only and framework == "tensorflow")


@pytest.mark.parametrize(
    ("imports", "decorator"),
    [
        ("import jax", "@jax.jit"),
        ("import jax as j", "@j.jit"),
        ("from jax import jit", "@jit"),
        ("import jax.numpy as jnp", "import jax\n@jax.jit"),
    ],
)
def test_the_decorator_of_a_step_is_imported(imports, decorator):
    code = code_after(STEP.format("w - rate * x", "pass").replace("import jax", imports), 4, compile_function, "jax")
    assert code == f"# before line 3:\n{decorator}"


def test_a_jitted_part_of_the_loop_calls_no_function_of_numpy():
    def make(code, number):
        return jit_statements(code, code.loops_around(code.statement_at(number))[0], {4, 6})

    source = "import jax.numpy as jnp\nimport numpy as np\nfor x in d:\n    g = jnp.sin(w)\n    v = {}.dot(g, g)\n"
    source += "    w = w - jnp.square(g) * v\n    print(w)\n"
    assert "v = jnp.dot(g, g)" in code_after(source.format("jnp"), 4, make)
    assert "np.dot" not in code_after(source.format("np"), 4, make).replace("jnp.dot", "")


@pytest.mark.parametrize("number", ["i + 1", "x / 255", "table[i] / 2"])
def test_only_a_number_with_a_fraction_becomes_an_array(number):
    source = "def step(x, k):\n    return x * k\nfor i, x in enumerate(data):\n    step(x, {})\n"
    assert "jnp.float32(i / 9)" in code_after(source.format("i / 9"), 4, pass_arrays, "jax")
    assert code_after(source.format(number), 4, pass_arrays, "jax") == ""


@pytest.mark.parametrize("result", ["x[mask]", "x.reshape(mask)", "jnp.repeat(x, mask)"])
def test_an_array_that_decides_a_shape_stays_a_constant(result):
    source = "import jax.numpy as jnp\nmask = np.ones(9)\n@jax.jit\ndef f(x):\n    return {}\nfor i in r:\n    f(i)\n"
    assert code_after(source.format("x * mask"), 7, pass_constants, "jax")
    assert code_after(source.format(result), 7, pass_constants, "jax") == ""


@pytest.mark.parametrize("use", ["log(total)", "global total; total = 0.0"])
@pytest.mark.parametrize("make", [partial(read_few_times, framework="torch"), receive_later])
def test_a_sum_that_a_called_function_uses_is_read_in_each_step(make, use):
    source = "total = 0.0\ndef report():\n    {}\nfor i in range(9):\n    total += loss.item()\n    report()\n"
    assert code_after(source.format("pass"), 5, make)
    assert code_after(source.format(use), 5, make) == ""


@pytest.mark.parametrize(
    "source",
    [
        "train = lambda x, y: model.fit(x, y)",
        "found = [model.fit(x, y) for x, y in data]",
        "if early: pass\nelif model.fit(x, y): pass",
        "model.fit(x, sample_weight=y)",  # Keras would take the weights of a feed as labels
    ],
)
def test_a_fit_without_data_of_its_statement_gets_no_feed(source):
    assert code_after(source, source.count("\n") + 1, feed_of_fit, 32) == ""


def test_an_argument_of_a_loader_is_not_passed_twice():
    assert code_after("DataLoader(rows, 8, True)", 1, change_loader, num_workers="4")
    assert code_after("DataLoader(rows, 8, True, None, None, 2)", 1, change_loader, num_workers="4") == ""


@pytest.mark.parametrize(
    ("value", "update"),
    [("torch.zeros(3, requires_grad=True)", "pass"), ("nn.Parameter(rows)", "pass"), ("load()", "table[0] += 1")],
)
def test_a_tensor_that_steps_change_moves_in_each_step(value, update):
    source = "def update():\n    {1}\ntable = {0}\nfor i in range(9):\n    train(table.to(gpu))\n    update()\n"
    assert code_after(source.format("load()", "pass"), 5, placement_edits._move_before_loop)
    assert code_after(source.format(value, update), 5, placement_edits._move_before_loop) == ""

"""Edits that would change what a script computes are not offered, whatever the form of the script."""

from functools import partial

import pytest
from tests.doctor.applied_cures import apply_cure
from tests.doctor.rules.edited_code import code_after

from forebay.doctor.rules import placement_edits
from forebay.doctor.rules.batch_edits import feed_of_loop
from forebay.doctor.rules.build_edits import build_once, pass_arrays, pass_constants
from forebay.doctor.rules.compile_edits import compile_function, compile_torch_model
from forebay.doctor.rules.fit_edits import feed_of_fit
from forebay.doctor.rules.input_edits import copy_without_wait
from forebay.doctor.rules.jit_edits import jit_statements
from forebay.doctor.rules.loop_edits import change_arrays, convert_before_loop, keep_arrays_on_device, remove_call
from forebay.doctor.rules.pause_edits import remove_expression
from forebay.doctor.rules.pin_edits import pin_array
from forebay.doctor.rules.read_edits import read_few_times, receive_later
from forebay.doctor.rules.step_edits import every_nth_step


def line_of(source, text):
    return next(number for number, line in enumerate(source.split("\n"), 1) if text in line)


def edited(source, text, make, *arguments, **keywords):
    """Return the script after the edits for the line with `text`; an empty text without edits."""
    code = code_after(source, line_of(source, text), make, *arguments, **keywords)
    cured = apply_cure(source, code) if code else ""
    compile(cured, "cured", "exec")
    return cured


SLICED = """import numpy as np
x = np.ones((90, 4))
for epoch in range(3):
    {}
    for i in range(0, 90, 4):
        train(torch.from_numpy(x[i : i + 4]).cuda())
"""


@pytest.mark.parametrize(
    "make",
    [partial(keep_arrays_on_device, framework="torch"), partial(change_arrays, change="{}.astype('f4')"), pin_array],
)
@pytest.mark.parametrize("change", ["x = np.load(name)", "np.random.shuffle(x)", "x[:] = 0", "x += 1", "x.sort()"])
def test_an_array_that_an_outer_loop_changes_is_not_prepared_before_it(make, change):
    assert edited(SLICED.format("pass"), "train(", make)
    assert edited(SLICED.format(change), "train(", make) == ""


CONSTANT = """import numpy as np
table = np.ones(3)
weights = first
for i in range(9):
    {}
    train(weights)
"""


@pytest.mark.parametrize(
    "statement",
    ["if i == 5: weights = torch.tensor(table)", "train(weights); weights = torch.tensor(table)"],
)
def test_a_name_that_has_another_value_before_keeps_this_value(statement):
    cured = edited(CONSTANT.format(statement), "torch.tensor", convert_before_loop, "torch")
    assert "table_on_device = torch.tensor(table)\nfor" in cured
    assert "    " + statement.replace("torch.tensor(table)", "table_on_device") in cured


def test_a_name_that_is_assigned_first_is_assigned_before_the_loop():
    cured = edited(CONSTANT.format("weights = torch.tensor(table)"), "torch.tensor", convert_before_loop, "torch")
    assert "weights = torch.tensor(table)\nfor i in range(9):\n    train(weights)\n" in cured


DRAWN = """import numpy as np
data = np.ones((90, 4))
position = 0
for i in range(9):
    {}
    x = torch.tensor(data[rows])
    {}
    train(x)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("rows = position", "position = rows + 4"),  # the batch depends on the previous step
        ("rows = rng.integers(len(data))", "data[i] = i"),
        ("rows = rng.integers(len(data))", "np.random.shuffle(data)"),
        ("rows = sampler.draw()", "sampler.update(x)"),
        ("rows = slice(i)", "rows = 0"),
        ("if i == 3: continue\n    rows = rng.integers(len(data))", "pass"),  # draws no rows in this step
    ],
)
def test_a_feed_makes_no_batches_that_need_an_earlier_step(before, after):
    assert edited(DRAWN.format("rows = rng.integers(len(data))", "pass"), "torch.tensor", feed_of_loop, "torch")
    assert edited(DRAWN.format(before, after), "torch.tensor", feed_of_loop, "torch") == ""


def test_a_loop_on_one_line_gets_no_feed():
    source = "import numpy as np\nx = np.ones(9)\nfor i in range(9): b = torch.tensor(x[i]); train(b)\n"
    assert edited(source, "torch.tensor", feed_of_loop, "torch") == ""


READ = """def train(losses):
    for i in range(9):
        loss = step()
        {}
        log(i)
"""


@pytest.mark.parametrize(
    "statement",
    ["yield loss.item()", "print(last := loss.item())", "scheduler.step(loss.item())", "out.put(loss.item())"],
)
@pytest.mark.parametrize("make", [partial(read_few_times, framework="torch"), every_nth_step])
def test_a_read_that_each_step_needs_stays(make, statement):
    assert edited(READ.format("print(loss.item())"), "item()", make)
    assert edited(READ.format(statement), "item()", make) == ""


@pytest.mark.parametrize("make", [lambda code, number: remove_call(code, number, "print"), remove_expression])
def test_a_call_that_assigns_a_name_is_not_removed(make):
    assert edited(READ.format("print(loss.item())"), "item()", make)
    assert edited(READ.format("print(last := loss.item())"), "item()", make) == ""


@pytest.mark.parametrize("use", ["if losses[-1] < 0.1: break", "print(len(losses))"])
def test_values_that_the_loop_uses_do_not_arrive_later(use):
    append = "losses.append(loss.item())"
    assert "readback.put(loss)" in edited(READ.format(append), append, receive_later)
    assert edited(READ.format(f"{append}\n        {use}"), append, receive_later) == ""
    held = append.replace("losses", "self.losses")
    use = use.replace("losses", "self.losses")
    assert edited(READ.format(f"{held}\n        {use}"), held, receive_later) == ""


BUILT = """f = g
for i in range(9):
    {}
    f(i)
"""


@pytest.mark.parametrize(
    "statement", ["if i == 3: f = tf.function(h)", "f(i); f = tf.function(h)", "f = tf.function(f)"]
)
def test_an_object_that_some_steps_build_is_not_built_before_the_loop(statement):
    assert "f = tf.function(h)\nfor" in edited(BUILT.format("f = tf.function(h)"), "tf.function", build_once)
    assert edited(BUILT.format(statement), "tf.function", build_once) == ""


STATIC = """@partial(jax.jit, {})
def step(weights, rate, mode="train"):
    return weights
for i in range(9):
    step(weights, {}1 / (i + 1), mode="test")
"""


@pytest.mark.parametrize("static", ["static_argnames='rate'", "static_argnames=('rate',)", "static_argnums=1"])
@pytest.mark.parametrize("keyword", ["", "rate="])
def test_a_static_number_becomes_an_array(static, keyword):
    cured = edited(STATIC.format(static, keyword), "1 / (i", pass_arrays, "jax")
    assert "@partial(jax.jit)\n" in cured
    assert "jnp.float32(1 / (i + 1))" in cured


@pytest.mark.parametrize(
    "static", ["static_argnames=('rate', 'mode')", "static_argnums=(1, 2)", "static_argnames=NAMES"]
)
def test_other_static_arguments_stay_static(static):
    assert edited(STATIC.format(static, "rate="), "1 / (i", pass_arrays, "jax") == ""


def test_an_only_generator_argument_gets_parentheses():
    source = (
        "import jax.numpy as jnp\nt = np.ones(9)\n@jax.jit\ndef f(x):\n    return t\n"
        "for i in range(9):\n    f(part for part in i)\n"
    )
    assert "f(t_on_device, (part for part in i))" in edited(source, "f(part", pass_constants, "jax")


TRAINED = """def train(net, optimizer):
    for x in data:
        net(x)
        optimizer.step()
def main():
    model = Net()
    train(model, SGD(model.parameters()))
main()
"""


def test_a_model_is_compiled_only_where_its_name_is_known():
    assert edited(TRAINED, "net(x)", compile_torch_model) == ""
    assert "    model.compile(" in edited(TRAINED.replace("net", "model"), "model(x)", compile_torch_model)


@pytest.mark.parametrize("source", ["x = load(); model.fit(x, y)", "if is_ready: model.fit(x, y)"])
def test_no_code_goes_above_other_code_of_its_line(source):
    with pytest.raises(ValueError, match="has several statements"):
        edited(source, "fit", feed_of_fit, 32)


@pytest.mark.parametrize(("after", "name"), [("done()", "weights"), ("print(weights.numpy())", "weights_on_device")])
def test_data_that_other_code_reads_on_the_host_stays_there(after, name):
    cured = edited(f"for i in r:\n    f(weights.to(gpu))\n{after}\n", "to(gpu)", placement_edits._move_before_loop)
    assert cured == f"{name} = weights.to(gpu)\nfor i in r:\n    f({name})\n{after}\n"


MATCHED = """import numpy as np
table = np.ones(3)
for command in commands:
    match command:
        case {{"table": {}}}:
            pass
    train(torch.tensor(table))
"""


def test_a_name_that_a_pattern_captures_changes_in_the_loop():
    assert edited(MATCHED.format("other"), "torch.tensor", convert_before_loop, "torch")
    assert edited(MATCHED.format("table"), "torch.tensor", convert_before_loop, "torch") == ""


@pytest.mark.parametrize("copy", ["x.to('cpu')", "x.to(host)", "x.cuda(0, True)", "x.to(device='cpu')"])
def test_a_copy_to_the_host_waits(copy):
    source = "host = torch.device('cpu')\nfor x in data:\n    y = {}\n    use(y.numpy())\n"
    assert "x.to(gpu, non_blocking=True)" in edited(source.format("x.to(gpu)"), "y = x", copy_without_wait)
    code = code_after(source.format(copy), 3, copy_without_wait)
    assert code == ""


@pytest.mark.parametrize(
    "branch", ["continue", "rate = rate / 2", "optimizer.step()", "if True: best = best + 1", "yield x"]
)
def test_a_check_that_decides_the_training_runs_in_each_step(branch):
    source = (
        "def train(rate, best):\n    for i, x in enumerate(data):\n        loss = step(x)\n"
        "        if loss.item() > 3:\n            {}\n        update(rate, best)\n"
    )
    make = partial(read_few_times, framework="torch")
    assert "if i % 100 == 0 and" in edited(source.format("break"), "item()", make)
    assert edited(source.format(branch), "item()", make) == ""


@pytest.mark.parametrize(("decorator", "is_edited"), [("@log", False), ("@jax.checkpoint", True)])
def test_a_function_with_an_unknown_decorator_is_not_compiled(decorator, is_edited):
    source = f"{decorator}\ndef step(x):\n    return x\nfor x in data:\n    step(x)\n"
    assert bool(edited(source, "    step(x)", compile_function, "jax")) == is_edited


JITTED = """import jax.numpy as jnp
class Trainer:
    def run(self, w):
        for i in range(9):
            g = jnp.tanh(w) * self.rate
            w = w - jnp.square(g)
            {}
        return w
"""


@pytest.mark.parametrize(
    ("after", "is_edited"), [("print(w)", True), ("self.decay()", False), ("self.rate = 1 / i", False)]
)
def test_an_attribute_that_the_loop_may_change_is_no_constant(after, is_edited):
    def make(code, number):
        return jit_statements(code, code.loops_around(code.statement_at(number))[0], {number})

    assert bool(edited(JITTED.format(after), "jnp.tanh", make)) == is_edited
    shared = "import jax.numpy as jnp\nrate = 1.0\n" + JITTED.replace("self.rate", "rate").partition("\n")[2]
    shared += "def decay():\n    global rate\n    rate *= 0.5\n"
    cured = edited(shared.format("decay()"), "jnp.tanh", make)
    assert "def train_step(rate, w)" in cured or "def train_step(w, rate)" in cured

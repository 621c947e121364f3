"""Edits of a loop keep what it computes: its indices, its order, its counters and its other statements."""

import numpy as np
import pytest
from tests.doctor.applied_cures import apply_cure
from tests.doctor.rules.edited_code import code_after

from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.rules.batch_edits import feed_of_loop
from forebay.doctor.rules.compile_edits import (
    compile_function,
    compile_keras,
    compile_torch_model,
    retrace_less,
)
from forebay.doctor.rules.edits import format_edits
from forebay.doctor.rules.loop_edits import (
    change_arrays,
    convert_before_loop,
    disable_setting,
    keep_arrays_on_device,
    remove_call,
)
from forebay.doctor.rules.step_edits import every_nth_step
from forebay.doctor.rules.xla_edits import compile_with_xla

PERMUTED = """import numpy as np
x = np.arange(40.0).reshape(20, 2)
y = np.arange(20)
for epoch in range(2):
    perm = np.random.permutation(len(x))
    for i in range(0, len(x), 4):
        xb = convert.as_tensor(x[perm[i : i + 4]])
        yb = convert.as_tensor(y[perm[i : i + 4]])
        train(xb, yb)
"""
DRAWN = """import numpy as np
x = np.arange(40.0).reshape(20, 2)
rng = np.random.default_rng(0)
for step in range(3):
    rows = rng.integers(0, 20, 4)
    batch = convert.as_tensor(x[rows], dtype="float32")
    train(batch, step)
"""
INDEXED = """import numpy as np
x = np.arange(40.0).reshape(20, 2)
for i in range(5):
    train(convert.asarray(x[i * 4 : (i + 1) * 4]))
"""
IMPLICIT = """import numpy as np
x = np.arange(40.0).reshape(20, 2)
for i in range(5):
    part = x[i * 4 : (i + 1) * 4]
    train(part)
"""


class Convert:
    """Replaces a framework that converts arrays."""

    @staticmethod
    def as_tensor(array, dtype=None):
        return np.asarray(array, dtype=dtype)

    asarray = as_tensor


def run(source):
    """Run a source; return the arguments of its calls of `train`."""
    received = []
    np.random.seed(0)
    names = {"convert": Convert, "train": lambda *values: received.append([np.array(value) for value in values])}
    exec(compile(source, "script", "exec"), names)
    return received


@pytest.mark.parametrize(
    ("source", "line"), [(DRAWN, 6), (INDEXED, 4), (IMPLICIT, 5)], ids=["drawn", "indexed", "implicit"]
)
def test_a_feed_gives_a_loop_the_same_batches(source, line):
    edits = feed_of_loop(ScriptCode(source), line, "numpy")
    text = apply_cure(source, format_edits(edits))
    assert "fb.from_batches(batches)" in text
    for was, is_now in zip(run(source), run(text), strict=True):
        for before, after in zip(was, is_now, strict=True):
            np.testing.assert_array_equal(before, after)


def test_a_shuffled_epoch_becomes_a_shuffled_feed_of_whole_arrays():
    text = apply_cure(PERMUTED, format_edits(feed_of_loop(ScriptCode(PERMUTED), 7, "numpy")))
    assert 'feed = fb.from_arrays((x, y)).shuffle(seed=0).batch(4).feed("numpy")' in text
    assert "    for xb, yb in feed:" in text
    received = run(text)
    assert len(received) == 10
    assert sorted(np.concatenate([labels for _, labels in received[:5]])) == list(range(20))


@pytest.mark.parametrize(
    "source",
    [
        "for s in range(9):\n    batch = torch.tensor(x[state])\n    state = step(batch)",  # depends on the last step
        "for s in range(9):\n    r = pick()\n    batch = torch.tensor(x[r])\n    log(r)",  # the index is used later
        "for s in range(9):\n    t = x[s]\n    t[0] = 1\n    batch = torch.tensor(t)\n    u = t.sum()",
        "while True:\n    batch = torch.tensor(x[i])",
        "for i in range(3):\n    total += i\n    batch = torch.tensor(x[total])",
        "batch = torch.tensor(x)",
    ],
)
def test_a_loop_whose_batches_depend_on_its_steps_gets_no_feed(source):
    code = ScriptCode(source)
    number = next(n for n, text in enumerate(source.split("\n"), 1) if "torch.tensor" in text)
    assert feed_of_loop(code, number, "torch") == []


def test_a_feed_does_not_overwrite_the_arrays_that_it_reads():
    source = "import numpy as np\nx = np.ones((8, 2))\nfor i in range(0, len(x), 4):\n    train(x[i : i + 4])\n"
    text = apply_cure(source, format_edits(feed_of_loop(ScriptCode(source), 4, "numpy")))
    assert "for x_batch in feed:" in text
    assert 'feed = fb.from_arrays(x).batch(4).feed("numpy")' in text


@pytest.mark.parametrize(
    ("source", "line", "edits"),
    [
        ("for i in r:\n    t = torch.tensor(d)\n    f()", 2, "# before line 1:\nt = torch.tensor(d)\n# remove line 2"),
        (
            "for e in r:\n    for i in s:\n        f(torch.tensor(d), i)\n",
            3,
            "# before line 1:\nd_on_device = torch.tensor(d)\n# instead of line 3:\nf(d_on_device, i)",
        ),
        ("for i in r:\n    d = next(it)\n    f(torch.tensor(d))\n", 3, ""),
    ],
)
def test_constant_data_is_converted_before_the_loop(source, line, edits):
    assert code_after(source, line, convert_before_loop, "torch") == edits


@pytest.mark.parametrize(
    "lines",
    [
        "w = torch.tensor(d)\n    w.add_(1)",
        "w = torch.tensor(d)\n    w[0] = 1",
        "w = torch.tensor(d)\n    w += 1",
        "w = torch.tensor(d)\n    torch.nn.init.normal_(w)",
        "w, v = torch.tensor(d), 1\n    w.data.mul_(v)",
        "w = torch.tensor(d)\n    np.add(d, 1, out=d)",
        "w = torch.tensor(d)\n    d[0] += 1",
        "w = torch.tensor(d)\n    d.sort()",
        "w = torch.tensor(d)\n    rng.shuffle(d)",
        "w = torch.tensor(d, requires_grad=True)\n    f(w).backward()",
    ],
)
def test_data_that_the_loop_changes_in_place_is_converted_in_every_step(lines):
    assert code_after(f"for i in r:\n    {lines}", 2, convert_before_loop, "torch") == ""


def test_calls_of_the_framework_do_not_change_its_name():
    source = "for i in r:\n    f(torch.tensor(d))\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)"
    assert "d_on_device = torch.tensor(d)" in code_after(source, 2, convert_before_loop, "torch")


def test_rows_are_selected_on_the_device():
    source = "x = np.ones(9)\nfor i in r:\n    f(tf.constant(x[idx[i]]))\n"
    text = code_after(source, 3, keep_arrays_on_device, "tensorflow")
    assert "x_on_device = tf.constant(x)" in text
    assert "f(tf.gather(x_on_device, idx[i]))" in text


def test_only_one_array_of_a_line_changes_its_dtype():
    change = '{}.astype("float32")'
    assert (
        code_after("for i in r:\n    f(x[i])", 2, change_arrays, change)
        == f"# before line 1:\nx = {change.format('x')}"
    )
    assert code_after("for i in r:\n    f(x[i], y[i])", 2, change_arrays, change) == ""


@pytest.mark.parametrize(("line", "name"), [("import numpy", "numpy"), ("import numpy as onp", "onp")])
def test_the_code_for_a_changed_array_uses_the_name_that_the_script_gives_numpy(line, name):
    text = code_after(f"{line}\nfor i in r:\n    f(x[i])", 3, change_arrays, "np.asarray({})")
    assert text == f"# before line 2:\nx = {name}.asarray(x)"


def test_a_wait_happens_in_few_steps_and_the_loop_gets_a_counter():
    text = code_after("for x in loader:\n    torch.cuda.synchronize()", 2, every_nth_step)
    assert "for step, x in enumerate(loader):" in text
    assert "if step % 100 == 0:\n    torch.cuda.synchronize()" in text


STEP = "def loss_of(w):\n    return w\ndef step(w):\n    {}\n    return w\nfor i in r:\n    w = step(w)\n"


def test_the_function_that_the_loop_calls_is_compiled():
    assert (
        code_after(STEP.format("g = jax.grad(loss_of)(w)"), 2, compile_function, "jax") == "# before line 3:\n@jax.jit"
    )
    assert code_after(STEP.format("g = f(w)"), 7, compile_function, "tensorflow").endswith("tf\n@tf.function")


@pytest.mark.parametrize("body", ["print(w)", "v = float(w)", "if w > 0: w = 1", "global n"])
def test_a_function_that_jax_cannot_compile_is_left_alone(body):
    assert code_after(STEP.format(body), 4, compile_function, "jax") == ""


def test_a_compiled_function_is_not_compiled_again():
    source = "@jax.jit\ndef step(w):\n    return w\nfor i in r:\n    w = step(w)\n"
    assert code_after(source, 3, compile_function, "jax") == ""
    compiled = source.replace("@jax.jit", "@tf.function(jit_compile=True)")
    assert code_after(compiled, 5, compile_with_xla) == ""
    plain = source.replace("@jax.jit", "@tf.function")
    assert "@tf.function(jit_compile=True)" in code_after(plain, 5, compile_with_xla)
    assert "@tf.function(reduce_retracing=True)" in code_after(plain, 5, retrace_less, "step", reduce_retracing="True")


def test_xla_compiles_the_function_that_a_training_loop_calls_and_not_the_training():
    step = "@tf.function\ndef step(x):\n    return x\n"
    source = f"{step}def train(data):\n    for x in data:\n        step(x)\n    draw()\ntrain(d)\n"
    for line in (5, 6):
        assert code_after(source, line, compile_with_xla) == "# instead of line 1:\n@tf.function(jit_compile=True)"


def test_xla_compiles_the_function_around_a_compiled_part_of_the_step():
    part = "@tf.function\ndef gradients(x):\n    return x\n"
    source = f"{part}def train(x):\n    optimizer.apply(gradients(x))\nfor x in data:\n    train(x)\n"
    assert code_after(source, 5, compile_with_xla) == "# before line 4:\n@tf.function(jit_compile=True)"


def test_xla_does_not_compile_a_function_that_reads_values():
    source = "def train(x):\n    print(float(optimizer.apply(x)))\nfor x in data:\n    train(x)\n"
    assert code_after(source, 2, compile_with_xla) == ""


@pytest.mark.parametrize("layer", ["LSTM(8)", "tf.keras.layers.Bidirectional(GRU(8))", "tf.while_loop(c, b, v)"])
def test_xla_does_not_compile_scripts_with_recurrent_layers(layer):
    source = f"model = [{layer}]\n@tf.function\ndef step(x):\n    return x\nfor x in data:\n    step(x)\n"
    assert code_after(source, 6, compile_with_xla) == ""


def test_a_training_loop_inside_a_function_is_not_compiled_as_a_whole():
    source = "def train():\n    for i in r:\n        f(i)\nfor seed in seeds:\n    train()\n"
    assert format_edits(compile_function(ScriptCode(source), 3, "tensorflow", 3)) == ""


def test_a_model_is_compiled_unless_it_is_compiled_already():
    source = "net = Net()\nopt = SGD(net.parameters())\nfor x in loader:\n    net(x)\n    opt.step()\n"
    assert code_after(source, 5, compile_torch_model) == '# before line 3:\nnet.compile(mode="reduce-overhead")'
    assert code_after(f"net = torch.compile(Net())\n{source}", 6, compile_torch_model) == ""


def test_keras_settings_change_in_the_call_as_written():
    code = ScriptCode('model.compile("sgd", "mse", run_eagerly=True)')
    assert format_edits(compile_keras(code, 1)) == '# instead of line 1:\nmodel.compile("sgd", "mse")'
    done = ScriptCode('model.compile("sgd", "mse", jit_compile=True)')
    assert compile_keras(done, 1, jit_compile="True") == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("run_eagerly=True", "steps_per_execution=50"),
        ('"sgd", run_eagerly=True, loss="mse"', '"sgd", steps_per_execution=50, loss="mse"'),
        ("run_eagerly=True, steps_per_execution=2", "steps_per_execution=50"),
    ],
)
def test_a_new_argument_replaces_run_eagerly(before, after):
    edits = compile_keras(ScriptCode(f"model.compile({before})"), 1, steps_per_execution="50")
    assert format_edits(edits) == f"# instead of line 1:\nmodel.compile({after})"


def test_the_compile_call_of_the_trained_model_is_edited():
    code = ScriptCode('a.compile("sgd")\nb.compile("adam")\nhistory = b.fit(x, y)\nplot(history)\n')
    edits = compile_keras(code, 3, steps_per_execution="50")
    assert format_edits(edits) == '# instead of line 2:\nb.compile("adam", steps_per_execution=50)'
    assert compile_keras(code, 4, steps_per_execution="50") == []


EPOCHS = """import numpy as np
x = np.arange(40.0).reshape(20, 2)
for epoch in range(2):
    order = np.random.permutation(20)
    for i in range(5):
        rows = order[i * 4 : (i + 1) * 4]
        train(convert.as_tensor(x[rows]))
"""


def test_a_feed_that_needs_names_of_its_epoch_is_made_in_each_epoch():
    text = apply_cure(EPOCHS, format_edits(feed_of_loop(ScriptCode(EPOCHS), 7, "numpy")))
    assert "    feed.close()" in text
    for was, is_now in zip(run(EPOCHS), run(text), strict=True):
        np.testing.assert_array_equal(was[0], is_now[0])


def test_random_data_is_not_converted_before_the_loop():
    assert code_after("for i in r:\n    z = torch.randn(n).to(device)\n    f(z)", 2, convert_before_loop, "torch") == ""


def test_two_constants_get_two_names():
    source = "for i in r:\n    f(torch.tensor(d[0]), torch.tensor(d[1]))\n"
    text = code_after(source, 2, convert_before_loop, "torch")
    assert "f(d_on_device, d_on_device_1)" in text


def test_a_sharded_upload_gets_no_feed():
    source = "import numpy as np\nx = np.ones(9)\nfor i in range(9):\n    f(jax.device_put(x[i], sharding))\n"
    assert code_after(source, 4, feed_of_loop, "jax") == ""


def test_a_call_is_removed_unless_the_script_uses_its_result():
    assert code_after("for i in r:\n    gc.collect()\n    f(i)", 2, remove_call, "collect") == "# remove line 2"
    assert code_after("for i in r:\n    n = gc.collect()\n    f(n)", 2, remove_call, "collect") == ""


def test_other_statements_of_a_line_stay():
    source = "for i in r:\n    f(i); time.sleep(1); g(i)  # wait"
    assert code_after(source, 2, remove_call, "sleep") == "# instead of line 2:\nf(i); pass; g(i)  # wait"
    assert code_after("for i in r: time.sleep(1)", 1, remove_call, "sleep") == "# instead of line 1:\nfor i in r: pass"
    assert code_after("for i in r:\n    sleep(1); sleep(2)", 2, remove_call, "sleep") == ""
    with pytest.raises(ValueError, match="line 2 has several statements"):
        code_after("for i in r:\n    f(i); print(i)", 2, every_nth_step)


def test_a_setting_is_switched_off_where_the_script_switches_it_on():
    with_block = "with torch.autograd.set_detect_anomaly(True):\n    f()"
    expected = "# instead of line 1:\nwith torch.autograd.set_detect_anomaly(False):"
    assert code_after(with_block, 1, disable_setting, "set_detect_anomaly") == expected
    assert code_after("check_numerics()\nf()", 1, disable_setting, "check_numerics") == "# remove line 1"
    assert code_after("with detect_anomaly():\n    f()", 1, disable_setting, "detect_anomaly") == ""
    assert code_after("f(True, True)", 1, disable_setting, "detect_anomaly") == ""

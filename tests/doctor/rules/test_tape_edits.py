"""A gradient step that was moved into a `tf.function` trains as before.

There is no edit if the function could change results.
"""

import runpy

import numpy as np
import pytest
from tests.doctor.applied_cures import apply_cure
from tests.doctor.rules.edited_code import code_after

from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.rules.tape_edits import compile_tape
from forebay.doctor.rules.xla_edits import supports_xla, with_xla

SCRIPT = """import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(0)
x = np.random.default_rng(0).random((24, 4), np.float32)
model = tf.keras.Sequential([tf.keras.layers.Dense(3, activation="tanh"), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.Adam(0.1)
loss_fn = tf.keras.losses.MeanSquaredError()
rows = tf.data.Dataset.from_tensor_slices((x, x.sum(1)))
rows = rows.batch(5)
losses = []
for epoch in range(2):
    for step, (inputs, targets) in enumerate(rows):
        inputs = tf.cast(inputs, tf.float32)
        with tf.GradientTape() as tape:
            # the forward pass
            outputs = model(inputs, training=True)
            loss = loss_fn(targets, outputs)
        gradients = tape.gradient(loss, model.trainable_variables)
        for gradient in gradients:
            tf.clip_by_norm(gradient, 15)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        losses.append(float(loss) + step)
"""
LINE = 22


def test_the_compiled_step_trains_as_the_script_does(tmp_path):
    code = code_after(SCRIPT, LINE, compile_tape)
    assert "loss = train_step(inputs, targets)" in code
    results = []
    for name, text in ("before.py", SCRIPT), ("after.py", apply_cure(SCRIPT, code)):
        path = tmp_path / name
        path.write_text(text)
        names = runpy.run_path(str(path))
        results.append([*names["losses"], *(weight.ravel() for weight in names["model"].get_weights())])
    assert len(results[0]) == 10 + 4
    for before, after in zip(*results, strict=True):
        np.testing.assert_allclose(before, after, rtol=1e-4)


def test_two_models_with_two_tapes_become_one_function():
    source = """import tensorflow as tf
for images in tf.data.Dataset.from_tensor_slices(data).batch(8).take(5):
    noise = tf.random.normal([8, 100])
    with tf.GradientTape() as first, tf.GradientTape() as second:
        made = generator(noise)
        real, fake = critic(images), critic(made)
        loss, other = tf.reduce_mean(fake), tf.reduce_mean(real - fake)
    a = first.gradient(loss, generator.trainable_variables)
    b = second.gradient(other, critic.trainable_variables)
    adam.apply_gradients(zip(a, generator.trainable_variables))
    rms.apply_gradients(zip(b, critic.trainable_variables))
    history(loss)
"""
    code = code_after(source, 10, compile_tape)
    assert "def train_step(images, noise):" in code or "def train_step(noise, images):" in code
    assert code.count("apply_gradients") == 2
    assert "loss = train_step(" in code


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("loss_fn(targets, outputs)", "loss_fn(targets, outputs) * step"),  # a number that changes in each step
        ("loss_fn(targets, outputs)", "loss_fn(targets, outputs); print(loss)"),
        ("loss_fn(targets, outputs)", "loss_fn(targets, outputs.numpy())"),
        ("loss_fn(targets, outputs)", "np.mean(outputs)"),
        ("loss_fn(targets, outputs)", "unknown.measure(outputs)"),  # a method that may keep Python values
        ("rows = rows.batch(5)", "rows = [(x, x.sum(1))]"),  # not known to be tensors
        ("losses.append(float(loss) + step)", "losses.append(tape)"),  # a tape is no result of a `tf.function`
        ("for gradient in gradients:", "for gradient in rows:"),
        ("        optimizer.apply", "        if step:\n            optimizer.apply"),
        ("gradients = tape", "model = tf.keras.Sequential(); gradients = tape"),  # the loop replaces a captured object
        ("losses.append", "model.rate = 0.5; losses.append"),  # the function would keep the first rate
        ("losses.append", "del tape; losses.append"),
        ("gradients = tape", "assert loss < 9; gradients = tape"),
        ("zip(gradients, model", "zip([g for g in gradients if g is not None], model"),
        ("loss_fn(targets, outputs)", "loss_fn(targets, outputs); tf.random.set_seed(1)"),
        ("loss_fn(targets, outputs)", "loss_fn(targets, outputs) * tf.Variable(1.0)"),
        ("            loss = ", "            losses_now = len(outputs)\n            loss = "),  # read after the step
        ("enumerate(rows)", "tqdm(enumerate(rows))"),  # the next change uses the number that this loop counts
    ],
)
def test_a_step_that_a_function_would_change_is_left_as_it_is(old, new):
    source = SCRIPT.replace(old, new)
    assert source != SCRIPT
    source += "print(losses_now)\n" if "losses_now" in source else ""
    source = (
        source.replace("loss_fn(targets, outputs)", "loss_fn(targets, outputs) * step") if "tqdm" in new else source
    )
    assert code_after(source, LINE, compile_tape) == ""


@pytest.mark.parametrize(
    "body", ["return x * float(x[0])", "self.calls += 1", "self.seen['x'] = x", "return x * np.random.rand()"]
)
@pytest.mark.parametrize("base", ["(tf.keras.Model)", "(Mixin)"])
def test_a_model_that_keeps_state_or_reads_values_in_python_is_not_compiled(base, body):
    layer = f"class Own{base}:\n    def call(self, x):\n        {body}\n"
    assert code_after(SCRIPT, LINE, compile_tape)
    assert code_after(SCRIPT + layer, LINE, compile_tape) == ""


def test_a_function_that_counts_is_not_compiled():
    counting = "def loss_fn(y, p):\n    global calls\n    calls += 1\n    return tf.reduce_mean(y - p)\n"
    source = SCRIPT.replace("loss_fn = tf.keras.losses.MeanSquaredError()\n", counting)
    line = LINE + counting.count("\n") - 1
    assert code_after(source.replace("    global calls\n    calls += 1\n", ""), line - 2, compile_tape)
    assert code_after(source, line, compile_tape) == ""


def test_an_entry_that_the_script_changes_is_not_compiled():
    source = SCRIPT.replace("outputs)\n        gradients", "outputs) * config['w']\n        gradients")
    assert source != SCRIPT
    assert code_after(source + "hp['w'] = 2\n", LINE, compile_tape) == ""


def test_batches_of_many_shapes_are_traced_for_any_shape():
    code = code_after(SCRIPT, LINE, compile_tape)
    assert "@tf.function(reduce_retracing=True)" in code
    assert with_xla(code) == ""


def test_xla_is_not_added_to_operations_that_it_does_not_compile():
    assert supports_xla(ScriptCode(SCRIPT))
    for line in "tf.boolean_mask(x, y)", "keras.layers.LSTM(3)", "layers.RandomRotation(0.1)", "tf.unique(x)":
        assert not supports_xla(ScriptCode(SCRIPT + line))
    assert with_xla("# before line 1:\n@tf.function\ndef f(): ...") == (
        "# before line 1:\n@tf.function(jit_compile=True)\ndef f(): ..."
    )
    assert with_xla("# instead of line 1:\nfit(x)") == ""

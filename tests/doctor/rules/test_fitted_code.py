"""Rules offer code with the names of the script, and no cure that the script has already."""

from dataclasses import replace

import pytest
from tests.doctor.captures import (
    TENSORFLOW,
    TENSORFLOW_GPU,
    TORCH_GPU,
    MiB,
    batch,
    build,
    download,
    loop,
    move,
    ops,
    prepare,
    run,
    upload,
)

from forebay.doctor.diagnosis.diagnose import diagnose

LINE = 10  # number of the first line of every script below


def fitted(source, *happenings, **given):
    """Return the capture of a loop in a script, whose first line has the number LINE."""
    lines = [[LINE + index, text] for index, text in enumerate(source.split("\n"))]
    return loop(*happenings, facts={"script": {"files": [{"file": "train.py", "lines": lines}]}}, **given)


def codes(source, *happenings, rule, frameworks=TENSORFLOW_GPU, **given):
    """Return the codes of the cures of a rule for a script."""
    capture = fitted(source, *happenings, frameworks=frameworks, **given)
    (finding,) = [finding for finding in diagnose(capture).findings if finding.rule == rule]
    return [cure.code for cure in finding.cures]


def generator(**detail):
    made = replace(prepare("generator", 7.9, line=LINE + 4), api="generator")
    return batch("keras generator", 8, line=LINE + 3, loader="generator", **detail).containing(made)


def test_batches_of_a_keras_generator_are_not_batched_again():
    source = "def batches():\n    while True:\n        yield x, y\nmodel.fit(batches(), steps_per_epoch=9, epochs=2)"
    (code,) = codes(source, generator(), rule="input_bound")
    assert 'feed = fb.from_batches(batches).feed("keras")' in code
    assert "model.fit(feed, steps_per_epoch=9, epochs=2)" in code


def test_arrays_of_fit_keep_their_names_and_batch_size():
    source = "model.fit(train_x, train_y, batch_size=128, epochs=4)"
    made = batch("keras arrays", 5, line=LINE, loader="arrays", batch_rows=128)
    (code,) = codes(source, made, rule="input_bound")
    assert "fb.from_arrays((train_x, train_y)).shuffle(seed=0).batch(128)" in code
    assert "256" not in code


@pytest.mark.parametrize(
    ("passed", "is_fed"),
    [("data", True), ("w, batch=data", True), ("data[0] / 255", False), ("other", False), ("w, load(data)", False)],
)
def test_a_feed_takes_the_batches_that_the_loop_converts(passed, is_fed):
    source = f"def batches():\n    yield x, y\nfor data in batches():\n    loss = train({passed})"
    copy = upload("tf.function", 4, line=LINE + 3, nbytes=MiB)
    (code,) = [code for code in codes(source, copy, rule="conversion_in_loop") if "import forebay" in code]
    assert ('feed = fb.from_batches(batches).feed("tensorflow")' in code) == is_fed


def test_a_feed_of_small_batches_is_not_offered_for_short_steps():
    source = "def batches():\n    yield x, y\nfor data in batches():\n    loss = train(data)"
    copy = upload("tf.function", 0.5, line=LINE + 3, nbytes=8 << 10)
    code = codes(source, copy, rule="conversion_in_loop", ms=1)
    assert code
    assert "forebay" not in "".join(code)


def test_a_feed_of_a_slow_loader_is_not_offered():
    """The workers of the loader would still make the batches."""
    source = (
        "loader = DataLoader(make(), batch_size=8, num_workers=2, sampler=other)\nfor x, y in loader:\n    train(x, y)"
    )
    wait = batch(ms=8, line=LINE + 1, workers=2, batch_rows=8)
    assert not any("from_batches" in code for code in codes(source, wait, rule="input_bound", frameworks=TORCH_GPU))


def test_workers_are_added_to_the_loader_as_written():
    source = "for x, y in loader:\n    train(x, y)\nloader = DataLoader(cats, batch_size=8, shuffle=True)"
    made = batch(ms=8, line=LINE, workers=0, batch_rows=8).containing(prepare("row", 7))
    code = codes(source, made, rule="loader", frameworks=TORCH_GPU)
    assert any("DataLoader(cats, batch_size=8, shuffle=True, num_workers=8" in text for text in code)
    assert any("fb.from_source(cats).shuffle(seed=0).batch(8)" in text for text in code)


@pytest.mark.parametrize(
    ("scope", "wanted"),
    [
        ('with tf.device("/CPU:0"):', 'with tf.device("/GPU:0"):'),
        ('with tf.device("/GPU:0"):', "no kernel for this dtype"),
    ],
)
def test_a_device_scope_that_the_script_has_is_not_offered(scope, wanted):
    source = f"for i in r:\n    {scope}\n        y = tf.unique(x)"
    (code,) = codes(source, move(ms=2, line=LINE + 2), rule="placement")
    assert wanted in code
    assert ("with tf.device" in code.split("\n")[-1]) is wanted.startswith("with")


def keras_model(**settings):
    return build("Model.compile", 1, line=LINE, what="Model", **settings)


def test_an_eager_model_loses_its_setting_and_keeps_its_arguments():
    source = 'model.compile("adam", loss="mse", run_eagerly=True)\nmodel.fit(x, y)'
    happened = ops(400, ms=8, api="keras.ops", line=LINE + 1)
    (code,) = codes(source, happened, rule="eager", before=[keras_model(run_eagerly=True, jit_compile=False)])
    assert code == '# instead of line 10:\nmodel.compile("adam", loss="mse")'


def test_a_model_that_xla_compiles_reads_its_losses_less_often():
    source = 'model.compile("adam", "mse", steps_per_execution=50)\nmodel.fit(x, y)'
    happened = download("keras.metrics", ms=5, line=LINE + 1, device="GPU:0")
    (code,) = codes(source, happened, rule="read_back", before=[keras_model(jit_compile=True, steps_per_execution=50)])
    assert "steps_per_execution=500" in code
    assert "jit_compile" not in code


def test_a_feed_of_a_loop_uses_the_statements_of_the_loop():
    source = "x = np.ones((64, 9))\nfor i in range(9):\n    rows = pick(i)\n    train(torch.tensor(x[rows]))"
    happened = upload(ms=5, line=LINE + 3, nbytes=MiB // 2)
    found = codes(source, happened, rule="conversion_in_loop", frameworks=TORCH_GPU)
    assert any("rows = pick(i)\n        yield x[rows]" in code for code in found)
    assert not any("DataLoader" in code or "shuffle" in code for code in found)


def test_a_script_without_an_excerpt_gets_general_code():
    capture = loop(batch("keras arrays", 5, loader="arrays", batch_rows=16), frameworks=TENSORFLOW_GPU)
    (finding,) = diagnose(capture).findings
    assert "fb.from_arrays((x, y)).shuffle(seed=0).batch(16)" in finding.cures[0].code


def test_a_feed_of_one_generator_makes_batches_on_one_core():
    source = "def batches():\n    yield x, y\nfor x, y in batches():\n    loss = train(tf.constant(x), y)"
    happenings = prepare("row", 6, line=LINE + 3), upload("tf.constant", 0.1, line=LINE + 3, nbytes=MiB), run()
    capture = fitted(source, *happenings, frameworks=TENSORFLOW, machine={"cores": 8})
    (finding,) = [finding for finding in diagnose(capture).findings if finding.rule == "made_in_loop"]
    (cure,) = finding.cures
    assert "fb.from_batches(" in cure.code
    assert "One thread makes batches" in cure.basis
    assert cure.high == pytest.approx(0.004)  # the step takes 10 ms, and 6 ms of them make a batch

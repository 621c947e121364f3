"""Each rule finds its fault on the right line with a possible gain, and ignores near misses."""

from dataclasses import replace
from functools import cache
from importlib import import_module

import pytest
from tests.doctor.captures import (
    JAX,
    LINES,
    TENSORFLOW,
    TORCH,
    TORCH_GPU,
    MiB,
    batch,
    build,
    compile_,
    download,
    loop,
    move,
    ops,
    prepare,
    run,
    same,
    sync,
    upload,
)
from tests.doctor.rules.rule_captures import FAULTS, NEAR_MISSES, WARNINGS

from forebay.doctor.diagnosis.diagnose import RULES, diagnose
from forebay.doctor.diagnosis.savings import Simulation
from forebay.doctor.rules.precedence import PRECEDENCE
from forebay.doctor.rules.registry import view_for_rules

HEALTHY = {
    "nothing but computing": loop(),
    "a well-fed GPU": loop(
        batch(ms=0.05, workers=8, pinned=True, batch_rows=256, nbytes=32 * MiB),
        upload("Tensor.to", 0.05, nbytes=32 * MiB, device="cuda:0", pinned=True, non_blocking=True),
        download(ms=0.5, every=50),
        before=[build()],
    ),
    "a compiled step on tf.data": loop(
        batch("tf.data", 0.1, prefetch=True, batch_rows=256, nbytes=8 * MiB),
        run(ms=9),
        before=[build("tf.data", what="Dataset", shuffle_rows=1000), compile_(ms=900, reason="first")],
        frameworks=TENSORFLOW,
    ),
    "PyTorch on the CPU": loop(
        batch(ms=0.3, workers=0, pinned=False).containing(prepare("row", 0.2)),
        download(ms=0.01, device="cpu"),
        frameworks=TORCH,
    ),
    "JAX that reads every tenth step": loop(
        run("jax.jit", 0.1), download("float(array)", 3, every=10, device="cpu:0"), frameworks=JAX
    ),
}


def findings(capture, rule):
    view = view_for_rules(capture)
    found = import_module(f"forebay.doctor.rules.{rule}").examine(view)
    return [*map(Simulation.from_view(view).with_predicted_gain, found)]


@cache
def diagnosis_of_fault(name):
    """Diagnose the capture of a fault once for all tests of this file."""
    return diagnose(FAULTS[name][1])


def cases(table):
    """Parametrize a test with the names of a table."""
    return pytest.mark.parametrize("name", table)


@cases(FAULTS)
def test_a_fault_is_the_only_finding_on_its_line(name):
    rule, _, line = FAULTS[name]
    diagnosis = diagnosis_of_fault(name)
    assert [finding.rule for finding in diagnosis.findings] == [rule]
    assert (diagnosis.main.line.number if diagnosis.main.line else None) == line
    assert not diagnosis.failures


@cases(FAULTS)
def test_costs_and_gains_are_at_most_the_step_time(name):
    diagnosis = diagnosis_of_fault(name)
    assert 0 < diagnosis.main.seconds <= diagnosis.view.step_seconds
    assert all(0 <= cure.low <= cure.high <= diagnosis.view.step_seconds for cure in diagnosis.main.cures)
    assert all(cure.basis and cure.code and cure.title for cure in diagnosis.main.cures)


@cases(FAULTS)
def test_a_title_is_one_sentence_with_evidence(name):
    finding = diagnosis_of_fault(name).main
    assert not finding.title.endswith(".")
    assert "\n" not in finding.title
    assert finding.evidence
    assert 1 <= len(finding.cures) <= 3


@cases(WARNINGS)
def test_a_warning_names_its_line_and_costs_nothing(name):
    rule, capture, line = WARNINGS[name]
    (finding,) = findings(capture, rule)
    assert (finding.line.number if finding.line else None) == line
    assert finding.seconds == finding.gain == 0


@cases(NEAR_MISSES)
def test_a_near_miss_has_no_finding(name):
    rule, capture = NEAR_MISSES[name]
    assert findings(capture, rule) == []


@cases(HEALTHY)
def test_a_healthy_loop_has_no_findings(name):
    diagnosis = diagnose(HEALTHY[name])
    assert diagnosis.findings == ()
    assert diagnosis.failures == ()


def test_every_rule_has_a_fault_and_a_near_miss():
    assert {rule for rule, *_ in [*FAULTS.values(), *WARNINGS.values()]} == set(RULES)
    assert {rule for rule, _ in NEAR_MISSES.values()} == set(RULES)


def test_only_known_rules_have_precedence():
    assert {rule for rules in PRECEDENCE.values() for rule in rules} <= set(RULES)


def test_findings_are_ordered_by_the_gain_of_their_cures():
    capture = loop(upload(ms=6, line=1, key=same), download(ms=2, line=2), sync(ms=1, line=3))
    diagnosis = diagnose(capture)
    assert [finding.rule for finding in diagnosis.findings] == ["repeated_upload", "read_back", "sync"]
    assert [diagnosis.severity(finding) for finding in diagnosis.findings] == ["severe", "moderate", "moderate"]


def test_the_larger_gain_comes_before_the_larger_share():
    calls = upload("jax.device_put", 1.8, line=1, key=same), run("jit", 0.1), download("float(array)", 8, line=2)
    capture = loop(*calls, frameworks=JAX)
    assert [finding.rule for finding in diagnose(capture).findings] == ["repeated_upload", "read_back"]


def test_the_gain_is_the_time_of_repeated_uploads():
    (finding,) = findings(loop(upload(ms=6, key=same), frameworks=TENSORFLOW), "repeated_upload")
    assert finding.cures[0].low == pytest.approx(5.6e-3, rel=0.05)
    assert finding.cures[0].high == pytest.approx(6e-3, rel=0.1)


def test_a_wait_without_overlap_gains_nothing():
    (finding,) = findings(loop(download(ms=10)), "read_back")
    assert finding.seconds == 0
    assert finding.gain == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("tab = tf.constant(table)", "tab = fb.upload_once(table, "),
        ("tab = tf.convert_to_tensor(table, dtype=tf.float32)", "tab = fb.upload_once(table, "),
        ("loss = step(tf.constant(table))", "x = fb.upload_once(array, "),
    ],
)
def test_upload_once_uses_the_variable_names_of_the_line(text, code):
    capture = loop(upload("tf.constant", 6, key="same"), frameworks=TENSORFLOW)
    lines = tuple(line._replace(text=text) for line in capture.lines)
    (finding,) = findings(replace(capture, lines=lines), "repeated_upload")
    assert code in finding.cures[1].code


def test_a_wait_gains_at_most_the_rest_of_the_step():
    (finding,) = findings(loop(download(ms=9)), "read_back")
    assert finding.cures[0].high == pytest.approx(1e-3)


def test_prefetching_gains_at_most_the_rest_of_the_step():
    (finding,) = findings(loop(batch(ms=8), machine={"cores": 1}), "input_bound")
    assert finding.cures[-1].high == pytest.approx(2e-3, rel=0.06)


def test_a_generator_may_gain_the_whole_wait_and_keeps_its_batch_size():
    made = batch("generator", 8, batch_rows=32).containing(prepare("generator", 7.9))
    (finding,) = findings(loop(made, machine={"cores": 1}), "input_bound")
    assert [cure.high for cure in finding.cures] == pytest.approx([8e-3, 8e-3], rel=0.06)
    assert "fb.from_batches(batches).feed" in finding.cures[0].code
    assert "fb.from_generator(make).batch(32).feed" in finding.cures[1].code


def test_no_more_workers_than_cores_are_suggested():
    (finding,) = findings(loop(batch(ms=5, workers=8)), "input_bound")
    assert "num_workers" not in "".join(cure.code for cure in finding.cures)


def test_another_thread_is_not_suggested_for_slow_workers():
    (finding,) = findings(loop(batch(ms=5, workers=4)), "input_bound")
    assert "from_batches" not in "".join(cure.code for cure in finding.cures)
    assert {cure.low for cure in finding.cures} == {0}


def test_a_gpu_that_was_not_recorded_may_limit_the_step():
    (finding,) = findings(loop(upload("Tensor.to", 6, key=same, device="cuda:0", nbytes=8 * MiB)), "repeated_upload")
    assert finding.cures[0].low == 0
    assert finding.cures[0].high == pytest.approx(6e-3, rel=0.1)


def test_occasional_events_cost_their_share_of_the_run():
    """Compilation takes 300 ms for every 50 ms of steps; without it the run is 7 times as fast."""
    rule, capture, _ = FAULTS["a value compiled as a constant, every fifth step"]
    (finding,) = findings(capture, rule)
    step = view_for_rules(capture).step_seconds
    assert step / (step - finding.seconds) == pytest.approx(7, rel=0.1)


def test_events_are_scaled_down_if_profiling_made_steps_slower():
    (finding,) = findings(loop(batch(ms=6), untraced=(2e-3,) * 5), "input_bound")
    assert finding.seconds == pytest.approx(1.2e-3)


def test_events_keep_their_share_of_a_step_if_unprofiled_steps_are_longer():
    """Other programs may slow the unprofiled steps down. The parts of a step have the same shares."""
    (finding,) = findings(loop(batch(ms=6), untraced=(20e-3,) * 5), "input_bound")
    assert finding.seconds == pytest.approx(12e-3)


def test_the_findings_of_two_waits_in_a_step_mention_each_other():
    first, second = findings(loop(download(ms=3, line=1), download(ms=2, line=2)), "read_back")
    assert "The same step has other waits (line 2)" in first.evidence[1]
    assert "line 1" in second.evidence[1]


def test_a_pageable_copy_has_one_finding():
    capture = loop(batch(ms=0.1, pinned=False), upload("Tensor.to", 4, nbytes=32 * MiB, device="cuda:0", pinned=False))
    assert [finding.rule for finding in diagnose(capture).findings] == ["loader"]


@pytest.mark.parametrize(
    ("capture", "code"),
    [
        (loop(upload("tf.constant", 6, key=same), frameworks=TENSORFLOW), 'upload_once(array, to="tensorflow")'),
        (loop(upload("Tensor.to", 6, key=same), frameworks=TORCH_GPU), 'upload_once(array, to="torch")'),
        (loop(upload("step(x)", 6, key=same), frameworks={"jax": {}}), 'upload_once(array, to="jax")'),
        (loop(batch("Model.fit", 5, loader="arrays"), frameworks=TENSORFLOW), 'feed("keras")'),
        (loop(batch("generator", 5, batch_rows=64), frameworks={"jax": {}}), 'batch(64).feed("jax")'),
        (loop(ops(300, 9), frameworks=TENSORFLOW), "@tf.function"),
        (loop(build("jax.jit", 5, what="function", line=4), frameworks={"jax": {}}), "statement_4()"),
        (loop(build("Model.predict", 5, what="iterator"), frameworks=TENSORFLOW), "model.predict_on_batch(x)"),
    ],
)
def test_a_cure_is_code_in_the_framework_of_the_script(capture, code):
    assert any(code in cure.code for cure in diagnose(capture).main.cures)


@pytest.mark.parametrize(
    ("api", "frameworks", "code"),
    [
        ("tf.function", TENSORFLOW, "x = tf.constant(array)"),
        ("jax.jit: update(x)", JAX, "x = jax.device_put(array)"),
        ("Model.train_on_batch", TENSORFLOW, "x = tf.constant(array)"),
        ("Session.run", TENSORFLOW, 'x = tf.compat.v1.get_variable("x", initializer=array)'),
        ("tf.constant", TENSORFLOW, "statement_3()"),
    ],
)
def test_only_an_explicit_conversion_is_moved_in_front_of_the_loop(api, frameworks, code):
    (finding,) = findings(loop(upload(api, 6, line=3, key=same), frameworks=frameworks), "repeated_upload")
    assert finding.cures[0].code.startswith(code)


@pytest.mark.parametrize(
    ("capture", "rule"),
    [
        (loop(upload("Session.run", 6, key=same), frameworks=TENSORFLOW), "repeated_upload"),
        (loop(upload("Session.run", 6), frameworks=TENSORFLOW), "conversion_in_loop"),
        (
            loop(prepare("row", 4), upload("Session.run", 0.1), run("Session.run"), frameworks=TENSORFLOW),
            "made_in_loop",
        ),
    ],
)
def test_a_cure_passes_no_outside_tensors_to_a_session(capture, rule):
    (finding,) = findings(capture, rule)
    assert ["forebay" in cure.code or "for x, y in" in cure.code for cure in finding.cures] == [False]


def test_compilations_are_counted_per_function():
    compiling = compile_(ms=3, function=lambda number: "step" if number % 2 else "loss", times=2, reason="first")
    (finding,) = findings(loop(compiling, frameworks=TENSORFLOW), "retracing")
    assert "is compiled 39 times in 39 steps" in finding.title


def test_evidence_uses_paths_relative_to_the_script():
    lines = tuple(line._replace(file=f"/home/me/{line.file}") for line in LINES)
    slow = loop(prepare("row", 4, line=9), upload("tf.constant", 0.1, line=10), run(line=11), frameworks=TENSORFLOW)
    (finding,) = findings(replace(slow, script="/home/me/train.py", lines=lines), "made_in_loop")
    assert finding.evidence[0].endswith("and train.py:10.")


def test_the_finding_about_a_dataset_that_makes_batches_does_not_mention_rows():
    made = replace(prepare("row", 4, line=10), api="PyDataset.__getitem__")
    (finding,) = findings(
        loop(batch("Model.fit", 5, loader="generator").containing(made), frameworks=TENSORFLOW, machine={"cores": 8}),
        "input_bound",
    )
    assert finding.title.endswith("of the time: Python makes batches one by one")
    codes = " ".join(cure.code for cure in finding.cures)
    assert "workers=1, use_multiprocessing=True" in codes  # one worker keeps up with the rest of the step
    assert "fb.from_batches" in codes
    assert "fb.from_source" not in codes


def test_the_title_of_repeated_moves_has_the_bytes_of_one_move():
    (finding,) = findings(loop(move(ms=1, times=3, nbytes=MiB)), "placement")
    assert finding.title == "NonZero moves 1.0 MiB from GPU:0 to CPU:0 3 times per step"


@pytest.mark.parametrize(
    ("device", "code"),
    [
        ("cuda:1", 'batch = torch.from_numpy(np.stack(rows)).to("cuda:1")   # one call for all rows'),
        ("cpu", "batch = torch.from_numpy(np.stack(rows))   # one call for all rows"),
    ],
)
def test_the_cure_for_small_uploads_uploads_to_the_same_device(device, code):
    copies = upload(ms=0.05, times=100, nbytes=4096, device=device)
    (finding,) = findings(loop(copies, frameworks=TORCH_GPU), "many_small_copies")
    assert code in [cure.code for cure in finding.cures]


def test_a_pipeline_that_is_built_once_is_also_compiled_once():
    _, capture, _ = FAULTS["predict in the loop, which compiles its pipeline"]
    (finding,) = findings(capture, "rebuilt")
    assert finding.best_cure.low > 2e-3
    assert findings(capture, "retracing") == []


def test_if_no_core_is_free_the_best_cure_maps_whole_batches():
    _, capture, _ = FAULTS["a map of rows on busy cores"]
    (finding,) = findings(capture, "loader")
    best, *others = finding.cures
    assert "batch first" in best.title
    assert best.low > 2e-3
    assert all(cure.high < 0.2e-3 for cure in others)

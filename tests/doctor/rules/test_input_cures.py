"""Cures that replace the input of a script on the CPU: offered only if they do not make its steps longer."""

from dataclasses import replace

import pytest
from tests.doctor.captures import (
    MS,
    OTHER,
    TORCH,
    TORCH_GPU,
    KiB,
    MiB,
    batch,
    loop,
    prepare,
    run,
    script,
    tensorflow_loop,
    torch_loop,
    upload,
)

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.events import HostSample
from forebay.doctor.rules import conversion_in_loop, input_bound, loader
from forebay.doctor.rules.registry import view_for_rules

SCRIPT = script(
    "for epoch in range(9):",
    "    for x, y in loader:",
    "        train(x, y)",
    "loader = DataLoader(images, batch_size=64)",
)
PREFETCH, REPLACE = "prefetch batches during the step", "if the data is in arrays, replace the loader by a feed"
INDEX = "if the data is in tensors, index them"
FEWER = "make a batch with fewer operations"


def titles(rule, capture):
    return [cure.title for finding in rule.examine(view_for_rules(capture)) for cure in finding.cures]


def waiting_for(rows, *, ms=4.0, busy=1.0, frameworks=TORCH, **detail):
    """Return the capture of a loop of 10 ms per step on two cores that waits for batches of `rows` rows."""
    facts = {"busy_cores": busy, "foreign_cores": 0.0, **SCRIPT}
    waits = batch(ms=ms, line=2, workers=0, **{"batch_rows": rows, "nbytes": 5 * KiB} | detail)
    return loop(waits, ms=10, frameworks=frameworks, facts=facts, machine={"cores": 2})


def test_a_thread_is_not_offered_for_rows_of_a_few_microseconds():
    assert titles(input_bound, waiting_for(rows=64, ms=1.5)) == [INDEX]
    assert PREFETCH in titles(input_bound, waiting_for(rows=2, ms=1.5))


def test_a_thread_is_offered_for_small_rows_that_wait_for_files():
    assert PREFETCH in titles(input_bound, waiting_for(rows=64, ms=1.5, runnable=1e-4))


def test_a_thread_is_not_offered_if_the_step_uses_all_cores():
    offered = titles(input_bound, waiting_for(rows=2, busy=2.0))
    assert not {PREFETCH, REPLACE, "use workers", "use one worker per core"} & {*offered}


def test_a_script_that_uses_a_gpu_is_offered_a_thread_for_small_rows_too():
    offered = titles(input_bound, waiting_for(rows=64, ms=3, frameworks=TORCH_GPU))
    assert {PREFETCH, REPLACE, "use one worker per core"} <= {*offered}


@pytest.mark.parametrize(("ms", "workers"), [(4, 1), (6, 2), (9, 2)])
def test_a_loader_gets_as_many_workers_as_keep_up_with_the_rest_of_the_step(ms, workers):
    (cure,) = [
        cure
        for finding in diagnose(waiting_for(rows=2, ms=ms, nbytes=MiB)).findings
        for cure in finding.cures
        if "worker" in cure.title
    ]
    assert f"num_workers={workers}," in cure.code


@pytest.mark.parametrize("ms", [4.6, 4.9, 5.1, 5.4])
def test_one_worker_is_enough_if_batches_take_about_as_long_as_the_rest_of_the_step(ms):
    (cure,) = [each for each in cures_without_workers(ms=ms) if "worker" in each.title]
    assert "num_workers=1," in cure.code


def cures_without_workers(**given):
    return [cure for finding in diagnose(without_workers(**given)).findings for cure in finding.cures]


def without_workers(*, ms, foreign=0.0, cores=2):
    """Return the capture of a loop of 10 ms per step whose DataLoader makes rows in the thread of the loop."""
    facts = {"busy_cores": 1.0, "foreign_cores": foreign, **SCRIPT}
    waits = batch(ms=ms, line=2, workers=0, batch_rows=2, nbytes=MiB).containing(prepare("row", ms, line=10))
    return loop(waits, ms=10, frameworks=TORCH, facts=facts, machine={"cores": cores})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {},
            "2 cores: 2 workers. One worker makes the batches of a step in 7.00 ms, and the rest of the step takes 3.",
        ),
        ({"foreign": 0.6, "cores": 4}, "4 cores, of which other programs use 0.6: 3 workers."),
        ({"foreign": 3.5, "cores": 8}, "8 cores, of which other programs use 3.5: 3 workers."),
    ],
)
def test_the_finding_says_why_a_loader_gets_this_number_of_workers(given, sentence):
    (finding,) = loader.examine(view_for_rules(without_workers(ms=7, **given)))
    assert any(each.startswith(sentence) for each in finding.evidence)


def test_workers_are_not_offered_if_other_programs_use_the_other_core():
    assert not any("worker" in cure.title for cure in cures_without_workers(ms=5, foreign=1.0))


def test_workers_are_not_offered_if_no_core_is_free_and_the_finding_says_so():
    made = prepare("row", 7, line=10)
    waits = batch(ms=8, line=9, workers=0, batch_rows=2, nbytes=MiB).containing(made)
    capture = loop(waits, ms=10, frameworks=TORCH, facts={"busy_cores": 2.0}, machine={"cores": 2})
    (finding,) = loader.examine(view_for_rules(capture))
    assert INDEX in [cure.title for cure in finding.cures]
    assert any("busy" in sentence for sentence in finding.evidence)


def test_rows_of_files_are_stored_if_no_core_is_free_for_workers():
    """The samples show that the rows are decoded from files."""
    made = prepare("row", 7, line=10)
    waits = batch(ms=8, line=9, workers=0, batch_rows=2, nbytes=MiB).containing(made)
    capture = loop(waits, ms=10, frameworks=TORCH, facts={"busy_cores": 2.0}, machine={"cores": 2})
    rows = [event for event in capture.events if event.kind == "prepare"]
    samples = tuple(HostSample(each.start + MS, MS, each.thread, 10, "PIL.ImageFile.ImageFile.load") for each in rows)
    titles = [cure.title for cure in next(loader.examine(view_for_rules(replace(capture, samples=samples)))).cures]
    assert "decode the files once, and store the rows" in titles
    assert INDEX not in titles


def test_lists_are_not_converted_by_a_thread_because_this_needs_the_gil():
    facts = {"busy_cores": 1.0, **script("for x, y in batches():", "    x = torch.tensor(x)", "    train(x, y)")}
    lists, arrays = (
        torch_loop(upload("torch.tensor", 4, line=2, from_dtype=kind), facts=facts, machine={"cores": 2})
        for kind in ("list", "float32")
    )
    assert "use a feed, which converts without an extra copy" not in titles(conversion_in_loop, lists)
    assert "use a feed, which converts without an extra copy" in titles(conversion_in_loop, arrays)


def with_busy_thread(*, wait=0.1, making=6.0, busy=1.0, foreign=0.9):
    """Return the capture of a loop of 10 ms per step on two cores, whose batches another thread makes."""
    made = replace(prepare("row", making, line=10, thread=OTHER), api="PyDataset.__getitem__")
    facts = {"busy_cores": busy, "foreign_cores": foreign}
    waits = batch("tf.data", wait, line=9, loader="generator", prefetch=True)
    return tensorflow_loop(made, waits, run(ms=2, line=9), ms=10, facts=facts, machine={"cores": 2})


@pytest.mark.parametrize("wait", [0.1, 0.4, 0.6, 2.0])
def test_a_busy_thread_that_makes_batches_is_reported_for_short_and_long_waits(wait):
    finding = diagnose(with_busy_thread(wait=wait)).main
    assert (finding.rule, finding.line.number, finding.best_cure.title) == ("input_bound", 10, FEWER)


@pytest.mark.parametrize("given", [{"foreign": 0.0}, {"making": 3.0}, {"busy": None}])
def test_a_thread_that_takes_little_from_the_loop_is_not_reported(given):
    assert titles(input_bound, with_busy_thread(**given)) == []

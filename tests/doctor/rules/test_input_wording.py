"""What a finding says about a loop that waits for a dataset of Keras, and the order of its cures."""

from dataclasses import replace

import pytest
from tests.doctor.captures import LINES, MS, OTHER, batch, prepare, run, sampled, script, tensorflow_loop

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.events import Line
from forebay.doctor.report.terminal import render

FEWER, WORKERS = "make a batch with fewer operations", "make batches in worker processes"
SCRIPT = script(
    "pets = Pets(paths)",
    "model.fit(pets, epochs=3)",
)
LOAD = "keras.src.utils.image_utils.load_img"


def waiting_for_pets(function, *, wait=40, making=80, foreign=0.9, **workers):
    """Return the capture of a loop of 100 ms per step on two cores.

    Another thread makes the batches. Most of its samples are in `function` on line 14.
    """
    made = replace(prepare("row", making, line=10, thread=OTHER), api="PyDataset.__getitem__")
    facts = {"busy_cores": 0.7, "foreign_cores": foreign, "other_cores": 0.5, **SCRIPT}
    waits = batch("tf.data", wait, line=2, loader="generator", prefetch=True, nbytes=5 << 20, **workers)
    capture = tensorflow_loop(waits.containing(made), run(ms=40, line=2), ms=100, facts=facts, machine={"cores": 2})
    lines = list(LINES)
    lines[10] = Line("train.py", 10, "Pets.__getitem__", "def __getitem__(self, index):")
    capture = sampled(replace(capture, lines=tuple(lines)), (14, function, 60), (15, "", 20), thread=OTHER)
    early = tuple(sample._replace(time=sample.time - 80 * MS) for sample in capture.samples)  # in the making of a batch
    return replace(capture, samples=early)


def finding_of(capture):
    (finding,) = [each for each in diagnose(capture).findings if each.rule == "input_bound"]
    return finding


def test_a_finding_names_the_dataset_that_the_user_wrote_and_its_long_lines():
    finding = finding_of(waiting_for_pets(LOAD))
    assert finding.title.startswith("The loop waits for the PyDataset Pets for 40% of the time: Python reads and")
    assert any("in train.py:14 (load_img), 25% in train.py:15" in sentence for sentence in finding.evidence)


@pytest.mark.parametrize("function", [LOAD, "PIL.Image.Image.resize", "numpy.load", "cv2.imread", "builtins.open"])
def test_fewer_operations_are_no_cure_for_reading_files(function):
    titles = [cure.title for cure in finding_of(waiting_for_pets(function)).cures]
    assert titles[0] == WORKERS
    assert FEWER not in titles
    assert "decode the files once, and store the rows" in titles[1:]


def test_a_bound_ranks_below_a_predicted_range():
    finding = finding_of(waiting_for_pets("train.augment"))
    titles = [cure.title for cure in finding.cures]
    assert titles.index(WORKERS) < titles.index(FEWER)


def test_a_finding_says_which_part_of_its_cost_the_loop_waits():
    finding = finding_of(waiting_for_pets("train.augment"))
    assert finding.seconds > 40e-3
    assert "it waits 40.0 ms of a step (40%)" in finding.evidence[0]
    extra = finding.seconds - 40e-3
    assert f"may slow the loop down by up to {extra * 1e3:.1f} ms" in finding.evidence[1]
    assert all(cure.high <= finding.seconds for cure in finding.cures)
    assert "It costs up to" in render(diagnose(waiting_for_pets("train.augment"))).plain


def test_a_feed_of_arrays_is_the_code_of_the_cure_that_names_arrays():
    capture = waiting_for_pets(LOAD, making=1, workers=2)
    cures = [cure for cure in finding_of(capture).cures if "arrays" in cure.title]
    assert cures
    assert all("from_arrays(" in cure.code and "from_batches(" not in cure.code for cure in cures)


def test_a_wait_for_files_is_reported_if_no_core_is_free_for_workers():
    finding = finding_of(waiting_for_pets(LOAD, foreign=1.3))
    titles = [cure.title for cure in finding.cures]
    assert "decode the files once, and store the rows" in titles
    assert FEWER not in titles

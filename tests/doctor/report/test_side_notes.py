"""Memory, GPUs and other programs in every kind of report."""

import json
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest
from rich.cells import cell_len
from tests.doctor.analyse.test_gpu_gauges import GPU, SAMPLE
from tests.doctor.analyse.test_memory import reading
from tests.doctor.captures import batch, loop
from tests.doctor.report import report_samples as samples
from tests.doctor.report.test_html import Elements

from forebay.doctor.analyse.memory import DataCopies
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.report.document import to_document
from forebay.doctor.report.html import render_page
from forebay.doctor.report.side_notes import describe_data_copies, describe_other_programs
from forebay.doctor.report.terminal import ROWS, render

SCHEMA = json.loads(files("forebay.doctor.report").joinpath("schema.json").read_text())
DETAIL = {"key": "a", "device": "cuda:0", "dtype": "float32", "from_dtype": "float64"}


@pytest.fixture(scope="module")
def diagnosis():
    """Return the diagnosis of a run that stores a table in a graph, with memory and GPU readings."""
    events = [event._replace(detail=DETAIL) if event.kind == "upload" else event for event in samples.steps_of(51)]
    events.append(events[-1]._replace(kind="compile", api="tf.function", detail={"constants_nbytes": 5 << 20}))
    gauges = [GPU | {"samples": [SAMPLE | {"link_width": 8}]}]
    facts = {"memory": [reading(60, 5 << 30)], "gauges": gauges, "frameworks": {"torch": {"gpus": 1}}}
    return samples.diagnosis_of(samples.capture_of(events, facts=facts), samples.UPLOAD)


def test_the_terminal_report_has_a_paragraph_for_memory_and_gpu(diagnosis):
    lines = render(diagnosis).plain.splitlines()
    text = " ".join(" ".join(lines).split())
    assert (
        "Memory peak use: host 3.0 GiB of 128.0 GiB, cuda:0 6.0 GiB of 40.0 GiB; an array of 22.9 MiB occupies" in text
    )
    assert "5.0 MiB are constants in graphs" in text
    assert "GPU H200: 50% busy, 1,980 of 1,980 MHz, PCIe 5 x8" in text
    assert "its PCIe link has 8 of 16 lanes" in text
    assert max(map(cell_len, lines)) <= 80
    assert len(lines) <= ROWS


def test_copied_bytes_are_compared_with_distinct_data():
    one = DataCopies(1, 1 << 20, ("host", "cuda:0"), 2 << 20, 1 << 20, 5 << 20)
    assert describe_data_copies(one).endswith(
        "the script uploaded 5.0 MiB in total, but its arrays contain only 1.0 MiB"
    )
    assert describe_data_copies(replace(one, pieces=2, different_nbytes=2 << 20)).endswith(
        "but its arrays contain only 2.0 MiB"
    )


def test_the_page_shows_memory_and_gpu(diagnosis):
    text = render_page(diagnosis)
    assert Elements(text).open == []
    assert '<td class="number">5.0 GiB</td>' in text
    assert "5.0 MiB are constants in graphs: tf.function, 1 graph, train.py:39." in text
    assert "H200: 50% busy" in text


def test_the_document_fits_the_schema_and_has_no_raw_readings(diagnosis):
    document = json.loads(json.dumps(to_document(diagnosis), allow_nan=False))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert document["memory"]["copies"][0]["places"] == ["host", "cuda:0"]
    assert document["memory"]["constants"][0]["total_nbytes"] == 5 << 20
    assert document["gpus"][0]["remarks"] == ["its PCIe link has 8 of 16 lanes; check the slot and the BIOS settings"]
    assert document["facts"].keys() == {"frameworks"}


@pytest.mark.parametrize(
    ("facts", "workers", "note"),
    [
        ({"foreign_cores": 1.25}, 0, "other programs used 1.2 of 2 cores while steps were timed"),
        ({"foreign_cores": 0.4}, 0, ""),
        ({"foreign_cores": None}, 0, ""),
        ({}, 0, ""),
        ({"foreign_cores": 1.25}, 2, ""),  # an old capture: the worker processes of the script count too
        ({"foreign_cores": 1.75, "worker_cores": 0.5}, 2, "other programs used 1.2 of 2 cores while steps were timed"),
        ({"foreign_cores": 1.75, "worker_cores": 1.5}, 2, ""),
    ],
)
def test_the_report_says_that_other_programs_used_the_cores(facts, workers, note):
    capture = loop(batch(workers=workers, line=9), machine={"cores": 2}, facts=facts)
    diagnosis = diagnose(capture)
    page, terminal = render_page(diagnosis), " ".join(render(diagnosis).plain.split())
    assert describe_other_programs(diagnosis.view).startswith(note)
    assert bool(describe_other_programs(diagnosis.view)) is bool(note)
    assert ("Cores other programs used" in terminal, "other programs used" in page) == (bool(note), bool(note))

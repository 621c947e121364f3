"""The bench case of texts of different length: its contenders and its meter."""

import numpy as np
import pytest

from forebay.measure.bench.cases.cpu import CASES
from forebay.measure.bench.contenders import CONTENDERS, load_contender
from forebay.measure.bench.data import make_texts
from forebay.measure.bench.meters import RunSettings, padded_rows
from forebay.measure.bench.model import Workload

WORK = Workload(300, (), 10, dtype="int32", options={"tokens": 400, "longest": 200, "source": "texts"})


def start(name):
    return load_contender(CONTENDERS[name].location)(WORK)()


def texts(batches):
    return sorted(tuple(row[row > 0].tolist()) for batch in batches for row in np.asarray(batch))


@pytest.mark.parametrize("name", ["lengths_loop", "lengths_forebay"])
def test_contenders_deliver_every_text_within_the_budget(name):
    batches = [batch.copy() for batch in start(name)]
    assert texts(batches) == sorted(tuple(text) for text in make_texts(WORK).tolist())
    assert all(batch.size <= 400 for batch in batches)


def test_the_meter_counts_rows_and_the_padding_of_an_epoch():
    batches = [np.array([[1, 2], [3, 0]]), np.array([[1, 1]])]
    sampler = padded_rows.prepare(lambda work: lambda: batches, WORK, RunSettings(0.0, 0.0, 1))
    found = sampler.sample()
    assert found["padding"] == pytest.approx(100 / 6)
    assert found["rows"] > 0


def test_the_case_compares_the_shares_of_padding():
    (case,) = [case for case in CASES if case.name == "length-buckets"]
    assert {column.name for column in case.columns} == {"rows", "padding"}

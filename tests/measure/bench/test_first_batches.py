"""The bench case of the first batch of many rows."""

import numpy as np
import pytest

from forebay.measure.bench.cases.first_batches import FIRST_BATCH_CASES
from forebay.measure.bench.contenders import CONTENDERS, load_contender
from forebay.measure.bench.meters import RunSettings, first_batch
from forebay.measure.bench.model import Workload

(CASE,) = FIRST_BATCH_CASES
ENTRIES = {entry.label: entry for entry in CASE.entries}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_every_pipeline_delivers_a_batch(entry):
    batches = load_contender(CONTENDERS[entry.contender].location)(Workload(6000, (), 256, options=entry.options))()
    batch = next(iter(batches))
    assert len(batch) > 0
    batches.close()


def test_the_meter_leaves_out_the_first_loader():
    made = []

    def contender(work):
        made.append(work)
        return lambda: [np.zeros(3)]

    sampler = first_batch.prepare_later(contender, Workload(3, (), 3), RunSettings())
    sampler.warm_up()
    assert len(made) == 1
    assert set(sampler.sample()) == {"first"}
    assert len(made) == 2


def test_rows_that_need_no_pass_have_a_target():
    assert {target.of for target in CASE.targets} == {label for label in ENTRIES if label.split()[1] in AT_ONCE}


AT_ONCE = {"select,", "split", "skip", "interleave", "window"}  # second words of the labels of these rows

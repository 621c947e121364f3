"""The bench cases of DataFrames and sparse rows deliver the rows of the source."""

import numpy as np
import pytest

from forebay.measure.bench.cases.cpu import CASES
from forebay.measure.bench.contenders import CONTENDERS, load_contender
from forebay.measure.bench.data import make_array, make_csr
from forebay.measure.bench.model import Workload

FRAME = Workload(100, (20,), 30, options={"numbered": True, "source": "frame"})
SPARSE = Workload(100, (200,), 30, options={"source": "sparse"})


def rows_of(name, work, read=np.asarray):
    """Return all rows of an epoch as sorted lists."""
    batches = load_contender(CONTENDERS[name].location)(work)()
    return sorted(np.concatenate([read(batch).copy() for batch in batches]).tolist())


def test_the_feed_of_a_frame_has_its_rows():
    assert rows_of("frames_forebay", FRAME, lambda batch: batch["x"]) == sorted(make_array(FRAME).tolist())


@pytest.mark.parametrize("name", ["sparse_forebay", "sparse_scipy"])
def test_sparse_rows_become_the_rows_of_the_dense_matrix(name):
    assert rows_of(name, SPARSE) == sorted(make_csr(SPARSE).toarray().tolist())


def test_every_sparse_row_has_twenty_values():
    assert set(np.diff(make_csr(SPARSE).indptr).tolist()) == {20}
    assert (np.count_nonzero(make_csr(SPARSE).toarray(), axis=1) == 20).all()


@pytest.mark.slow
def test_the_torch_loop_has_the_rows_of_the_frame():
    assert rows_of("frames_torch", FRAME) == sorted(make_array(FRAME).tolist())


@pytest.mark.slow
def test_the_columns_of_tf_data_are_those_of_the_frame():
    found = rows_of("frames_tf", FRAME, lambda batch: np.stack([batch[f"x{number}"] for number in range(20)], axis=1))
    assert found == sorted(make_array(FRAME).tolist())


@pytest.mark.parametrize("name", ["image-folder", "image-shards", "frames", "sparse-rows"])
def test_every_contender_of_the_case_is_known(name):
    (case,) = [case for case in CASES if case.name == name]
    assert {entry.contender for entry in case.entries} <= set(CONTENDERS)
    assert case.baseline == case.entries[0].label

"""Pipelines of frames and sparse matrices deliver exact rows on the host and on devices."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.feed.test_build import DeviceLikeEngine, FakeDeviceHandOff, NarrowingHandOff
from tests.support.received import rows_of

import forebay as fb
from forebay.errors import BudgetError, PipelineError, SourceError, SpecError
from forebay.testing import SimulatedEngine
from forebay.testing.strategies import seeds

FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
MATRIX = sp.csr_array(sp.random(60, 400, density=0.02, format="csr", random_state=1)).astype("float32")
DENSE = MATRIX.toarray()


class ScatteringHandOff(FakeDeviceHandOff):
    """A device hand-off that makes rows dense."""

    def to_dense(self, values, columns, width):
        dense = np.zeros((len(values), width), values.dtype)
        np.put_along_axis(dense, columns, values, axis=1)
        return dense


class NarrowingScatteringHandOff(ScatteringHandOff, NarrowingHandOff):
    """A device hand-off without 64-bit floats that makes rows dense."""


def frame_pipeline(kind="pandas", rows=30):
    frame = FRAMES[kind]({"row": np.arange(rows), "a": np.arange(rows) * 0.5, "b": np.arange(rows) * 2.0})
    return fb.from_frame(frame, columns={"row": "row", "x": ["a", "b"]})


def sparse_pipeline(matrix=MATRIX):
    return fb.from_arrays({"x": matrix, "row": np.arange(matrix.shape[0])})


def device(hand_off=ScatteringHandOff):
    return DeviceLikeEngine(hand_off())


def check_rows(feed, dense=DENSE):
    """Compare one epoch with the rows of the matrix, and return the row numbers."""
    numbers = []
    for batch in feed:
        np.testing.assert_array_equal(batch["x"], dense[batch["row"]])
        numbers += batch["row"].tolist()
    return numbers


# Frames


@pytest.mark.parametrize("kind", FRAMES)
@given(seed=seeds, shards=st.tuples(st.integers(1, 3), st.integers(1, 3)), batch=st.integers(1, 7))
def test_frames_resume_exactly_on_another_number_of_shards(kind, seed, shards, batch):
    pipeline, (before, after) = frame_pipeline(kind).shuffle(seed=seed), shards
    found, state = [], None
    for shard in range(before):
        with pipeline.shard(shard, before).batch(batch).feed("numpy") as feed:
            found.append(next(feed))
            state = feed.state_dict() if state is None else state
    for shard in range(after):
        with pipeline.shard(shard, after).batch(batch).feed("numpy") as feed:
            feed.load_state_dict(state)
            found += [{name: leaf.copy() for name, leaf in row.items()} for row in feed]
    rows = np.concatenate([part["row"] for part in found])
    assert sorted(rows) == list(range(30))
    np.testing.assert_array_equal(np.concatenate([part["x"] for part in found]), np.c_[rows * 0.5, rows * 2.0])


def test_from_arrays_takes_frames_and_series():
    frame = pd.DataFrame({"a": [1, 2], "b": [3.0, 4.0]})
    assert next(fb.from_arrays(frame).batch(2).feed("numpy"))["b"].tolist() == [3.0, 4.0]
    tree = {"x": frame["b"], "y": pl.Series([5, 6]), "z": np.arange(2)}
    assert next(fb.from_arrays(tree).batch(2).feed("numpy"))["y"].tolist() == [5, 6]


def test_a_frame_inside_a_tree_is_refused():
    with pytest.raises(SpecError, match=r"'x' is a frame inside of a tree.*from_frame"):
        fb.from_arrays({"x": pd.DataFrame({"a": [1]}), "y": np.arange(1)})


@pytest.mark.parametrize("frame", [pd.DataFrame({0: [1, 2]}), pl.DataFrame({"a": [1]}), pa.table({"a": [1]})])
def test_from_source_refuses_frames(frame):
    with pytest.raises(SpecError, match=r"Use from_frame\(\)"):
        fb.from_source(frame)


def test_from_source_refuses_sparse_matrices():
    with pytest.raises(SpecError, match=r"Use from_arrays\(\)"):
        fb.from_source(MATRIX)


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_a_frame_without_rows_is_refused(make):
    with pytest.raises(SourceError, match="no rows"):
        fb.from_frame(make({"a": np.arange(0)}))


def test_other_columns_have_another_fingerprint():
    frame = pd.DataFrame({"a": [1.0], "b": [2.0]})
    prints = {
        fb.from_frame(frame, **options).fingerprint
        for options in ({}, {"columns": ["a"]}, {"columns": {"x": ["a", "b"]}}, {"dtype": "float32"})
    }
    assert len(prints) == 4


def test_explain_says_what_was_copied():
    with frame_pipeline("polars").batch(4).feed("numpy") as feed:
        assert "polars frame" in feed.explain()
        assert "480 B copied once ('x')" in feed.explain()


def test_rows_of_a_frame_that_changes_are_read_again():
    frame = pd.DataFrame({"a": np.arange(4)})
    with fb.from_frame(frame).batch(4).feed("numpy") as feed:
        assert rows_of(batch["a"] for batch in feed) == [0, 1, 2, 3]
        frame.iloc[0, 0] = 9
        assert rows_of(batch["a"] for batch in feed) == [9, 1, 2, 3]


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_deliver_the_same_rows_on_a_simulated_device(kind):
    pipeline = frame_pipeline(kind).shuffle(seed=2).batch(4)
    with pipeline.feed("numpy") as host, pipeline.feed("numpy", device=SimulatedEngine()) as simulated:
        for expected, found in zip(host, simulated, strict=True):
            np.testing.assert_array_equal(found["x"], expected["x"])


def test_categories_have_class_names_after_other_methods():
    frame = pd.DataFrame({"y": pd.Categorical(["dog", "cat"])})
    pipeline = fb.from_frame(frame)
    assert pipeline.shuffle(seed=1).batch(2).class_names == ("cat", "dog")
    assert pipeline.window(2).class_names == fb.concat(pipeline, pipeline).class_names == ("cat", "dog")


# Sparse matrices


@given(seed=seeds, shards=st.tuples(st.integers(1, 3), st.integers(1, 3)), on_device=st.booleans())
def test_sparse_rows_resume_exactly_on_another_number_of_shards_and_device(seed, shards, on_device):
    pipeline, (before, after) = sparse_pipeline().shuffle(seed=seed), shards
    state, numbers = None, []
    for shard in range(before):
        with pipeline.shard(shard, before).batch(4).feed("numpy") as feed:
            numbers += check_rows([next(feed)])
            state = feed.state_dict() if state is None else state
    for shard in range(after):
        with pipeline.shard(shard, after).batch(4).feed("numpy", device=device() if on_device else "cpu") as feed:
            feed.load_state_dict(state)
            numbers += check_rows(feed)
    assert sorted(numbers) == list(range(60))


def test_sparse_rows_cross_as_values_and_columns():
    with sparse_pipeline().shuffle(seed=1).batch(8).feed("numpy", device=device()) as feed:
        assert sorted(check_rows(feed)) == list(range(60))
        assert [str(spec) for spec in feed.specs] == ["float32[400]", "int64[]"]
        assert feed.structure.paths == ("x", "row")
        assert sum(spec.nbytes for spec in feed.plan.input.specs) < 400
        text = feed.explain()
    assert "values and columns cross instead of 1.6 KiB" in text
    assert "fewer bytes cross the link than those of dense rows" in text


def test_sparse_rows_are_narrowed_like_dense_rows():
    matrix = MATRIX.astype("float64")
    with sparse_pipeline(matrix).batch(8).feed("numpy", device=device(NarrowingScatteringHandOff)) as feed:
        assert next(feed)["x"].dtype == np.float32
        assert sorted(check_rows(feed, matrix.toarray().astype("float32")))[-1] == 59


def test_device_transforms_see_dense_rows():
    pipeline = sparse_pipeline().map(fb.scale({"x": 2.0})).batch(8).map(double_row, where="device")
    with pipeline.feed("numpy", device=device()) as feed:
        assert "values and columns cross" in feed.explain()
        for batch in feed:
            np.testing.assert_array_equal(batch["x"], 2 * DENSE[batch["row"] // 2])


def double_row(batch):
    return {"x": batch["x"], "row": 2 * batch["row"]}


def draw(batch, rng):
    return {"x": batch["x"], "row": batch["row"], "drawn": rng.random(len(batch["row"]))}


def test_random_numbers_of_device_maps_do_not_depend_on_how_rows_cross():
    pipeline = sparse_pipeline().batch(8).map(draw, where="device", seed=3)
    with pipeline.feed("numpy", device=device()) as crossed:
        found = [batch["drawn"] for batch in crossed]
    with pipeline.feed("numpy", device=device(FakeDeviceHandOff)) as staged:
        assert "has no to_dense()" in staged.explain()
        np.testing.assert_array_equal(np.concatenate(found), np.concatenate([batch["drawn"] for batch in staged]))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: sparse_pipeline().map(dict), "runs on the host"),
        (lambda: sparse_pipeline(sp.csr_array(np.ones((60, 4), "float32"))), "would save too little"),
        (lambda: sparse_pipeline(MATRIX.astype("uint16")), "scatter uint16 on a device"),
        (lambda: sparse_pipeline(with_duplicates()), "not in canonical form"),
    ],
)
def test_other_sparse_rows_become_dense_on_the_host(make, reason):
    pipeline = make()
    with pipeline.batch(8).feed("numpy", device=device()) as feed, pipeline.batch(8).feed("numpy") as host:
        assert reason in feed.explain()
        for found, expected in zip(feed, host, strict=True):
            np.testing.assert_array_equal(found["x"], expected["x"])


def with_duplicates():
    matrix = sp.csr_array((2, 50), dtype="float32")
    matrix.data, matrix.indices, matrix.indptr = np.ones(3, "f4"), np.array([1, 1, 0]), np.array([0, 2, 3])
    return matrix


def test_resident_sparse_rows_are_refused():
    with pytest.raises(PipelineError, match="resident='always' needs rows that the device can pull"):
        sparse_pipeline().batch(8).feed("numpy", device=device(), resident="always")


def test_dense_rows_count_against_the_host_budget():
    matrix = sp.csr_array((100, 200_000), dtype="float32")
    with pytest.raises(BudgetError, match=r"host_bytes=1\.0 MiB is too small"):
        sparse_pipeline(matrix).batch(10).feed("numpy", host_bytes="1MiB")
    with sparse_pipeline(matrix).batch(10).feed("numpy", host_bytes="50MiB") as feed:
        assert feed.plan.nbytes <= 50 * 2**20
        assert sum(len(batch["row"]) for batch in feed) == 100


def test_sparse_rows_can_be_chosen_combined_and_windowed():
    pipeline = sparse_pipeline()
    chosen = pipeline.filter(lambda rows: rows["row"] % 2 == 0).split(0.5, 0.5, seed=1)
    with fb.concat(*chosen).batch(7).feed("numpy") as feed:
        assert sorted(check_rows(feed)) == list(range(0, 60, 2))
    with pipeline.window(3).batch(5).feed("numpy") as feed:
        first = next(feed)
        np.testing.assert_array_equal(first["x"], DENSE[first["row"]])


def test_maps_on_the_host_see_dense_rows():
    pipeline = sparse_pipeline().map(lambda row: {"x": row["x"] + 1, "row": row["row"]}).batch(8)
    with pipeline.feed("numpy") as feed:
        assert len(check_rows(feed, DENSE + 1)) == 60


def test_another_width_has_another_fingerprint():
    assert sparse_pipeline().fingerprint != sparse_pipeline(MATRIX[:, :399]).fingerprint


# Sparse batches


@pytest.mark.parametrize("where", ["cpu", "device"])
@given(seed=seeds, batch=st.integers(1, 70))
def test_sparse_batches_have_the_rows_of_the_matrix(where, seed, batch):
    pipeline = sparse_pipeline().shuffle(seed=seed).batch(batch, sparse=True)
    with pipeline.feed("numpy", device=device() if where == "device" else "cpu") as feed:
        numbers = []
        for found in feed:
            assert found["x"].format == "csr"
            assert found["x"].nnz == MATRIX[found["row"]].nnz
            np.testing.assert_array_equal(found["x"].toarray(), DENSE[found["row"]])
            numbers += found["row"].tolist()
        assert sorted(numbers) == list(range(60))
        assert [str(spec) for spec in feed.specs] == ["float32[400]", "int64[]"]
        assert feed.structure.paths == ("x", "row")


def test_sparse_batches_that_the_consumer_keeps_do_not_change():
    with sparse_pipeline().batch(3, sparse=True).feed("numpy") as feed:
        kept = [batch for _ in range(5) for batch in feed]
    for batch in kept:
        np.testing.assert_array_equal(batch["x"].toarray(), DENSE[batch["row"]])


def test_a_state_of_dense_batches_resumes_with_sparse_batches():
    pipeline = sparse_pipeline().shuffle(seed=1)
    with pipeline.batch(7).feed("numpy") as dense, pipeline.batch(4, sparse=True).feed("numpy") as feed:
        first = next(dense)["row"].tolist()
        feed.load_state_dict(dense.state_dict())
        assert sorted(first + [row for batch in feed for row in batch["row"].tolist()]) == list(range(60))


def test_a_matrix_alone_and_an_empty_matrix_are_sparse_batches():
    with fb.from_arrays(MATRIX).batch(60, sparse=True).feed("numpy") as feed:
        np.testing.assert_array_equal(next(feed).toarray(), DENSE)
    with fb.from_arrays(sp.csr_array((3, 5))).batch(2, sparse=True).feed("numpy") as feed:
        assert [(batch.shape, batch.nnz) for batch in feed] == [((2, 5), 0), ((1, 5), 0)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fb.from_arrays(np.arange(4)).batch(2, sparse=True), "needs rows directly from a CSR matrix"),
        (lambda: sparse_pipeline().window(2).batch(2, sparse=True), "needs rows directly from a CSR matrix"),
        (lambda: fb.concat(sparse_pipeline(), sparse_pipeline()).batch(2, sparse=True), "Or leave out sparse=True"),
        (lambda: sparse_pipeline().map(fb.cast("float64")).batch(2, sparse=True), r"cast\(float64\) needs dense rows"),
        (lambda: sparse_pipeline().batch(2, sparse=True).map(dict), "needs dense rows"),
        (lambda: sparse_pipeline().batch(2, sparse=True, pad=0), "pad= needs dense rows"),
        (lambda: sparse_pipeline(with_duplicates()).batch(2, sparse=True), r"Call matrix.sum_duplicates\(\)"),
        (lambda: sparse_pipeline(sp.csr_array((2, 2**31))).batch(2, sparse=True), "has 2147483648 columns"),
    ],
)
def test_batches_that_cannot_be_sparse_are_refused(make, message):
    with pytest.raises(PipelineError, match=message):
        make().feed("numpy")

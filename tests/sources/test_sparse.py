"""Rows of SciPy matrices, as dense rows or as values and columns; damaged matrices are refused."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from forebay.core.spec import flatten
from forebay.errors import SpecError
from forebay.sources import sparse
from forebay.sources.sparse import PaddedSparseSource, SparseSource
from forebay.testing import SourceTests
from forebay.transforms.batch_context import BatchContext
from forebay.transforms.densify import Densify

DTYPES = ["bool", "int8", "uint16", "int64", "float32", "float64", "complex64"]


def random_matrix(rows=40, columns=30, dtype="float32"):
    return sp.csr_array(sp.random(rows, columns, density=0.1, format="csr", random_state=1)).astype(dtype)


def make_csr(values, columns, starts, shape):
    """Make a matrix of these arrays as they are, also if they are wrong."""
    matrix = sp.csr_array(shape, dtype=np.asarray(values).dtype)
    matrix.data, matrix.indices, matrix.indptr = np.asarray(values), np.asarray(columns), np.asarray(starts)
    return matrix


def read(source, rows):
    out = [spec.empty(len(rows)) for spec in source.specs]
    source.gather(np.asarray(rows), out)
    return out


class TestSparseRows(SourceTests):
    def make_source(self, tmp_path):
        matrix = random_matrix()
        return SparseSource({"x": matrix, "y": np.arange(40)}), {"x": matrix.toarray(), "y": np.arange(40)}


class TestRowsOfManyParts(SourceTests):
    @pytest.fixture(autouse=True)
    def small_parts(self, monkeypatch):
        monkeypatch.setattr(sparse, "_PART_VALUES", 5)

    def make_source(self, tmp_path):
        matrix = sp.csr_matrix(random_matrix(dtype="int64"))
        return SparseSource(matrix), matrix.toarray()


matrices = hnp.arrays(
    st.sampled_from(DTYPES), hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=st.integers(0, 1)
)


@given(matrices, st.data())
def test_rows_are_the_dense_rows_of_the_matrix(dense, data):
    rows = data.draw(st.lists(st.integers(0, len(dense) - 1)))
    found = read(SparseSource(sp.csr_array(dense)), np.array(rows, np.intp))[0]
    assert found.dtype == dense.dtype
    np.testing.assert_array_equal(found, dense[rows])


@given(matrices, st.data())
def test_values_and_columns_become_the_same_dense_rows(dense, data):
    rows = np.array(data.draw(st.lists(st.integers(0, len(dense) - 1), min_size=1)), np.intp)
    source = SparseSource({"x": sp.csr_array(dense), "y": np.arange(len(dense))})
    padded = PaddedSparseSource(source)
    assert padded.structure.paths == ("x.values", "x.columns", "y")
    densify = Densify((dense.shape[1], None), source.structure)
    leaves, structure = densify.apply(read(padded, rows), padded.structure, BatchContext.of_sample(len(rows)))
    assert structure == source.structure
    np.testing.assert_array_equal(leaves[0], dense[rows])
    np.testing.assert_array_equal(leaves[1], rows)


def test_padded_rows_of_many_parts_are_complete(monkeypatch):
    monkeypatch.setattr(sparse, "_PART_VALUES", 7)
    matrix = random_matrix()
    padded = PaddedSparseSource(SparseSource(matrix))
    leaves = read(padded, np.arange(40))
    found = Densify((30,), flatten(0)[1]).apply(leaves, padded.structure, BatchContext.of_sample(40))[0][0]
    np.testing.assert_array_equal(found, matrix.toarray())


def test_unsorted_columns_and_duplicates_are_added_as_scipy_does():
    matrix = make_csr(np.array([1.0, 2.0, 4.0]), [2, 0, 2], [0, 3, 3], (2, 3))
    assert read(SparseSource(matrix), [0, 1])[0].tolist() == [[2.0, 0.0, 5.0], [0.0, 0.0, 0.0]]
    assert SparseSource(matrix).leaves[0].has_duplicates
    assert matrix.indices.tolist() == [2, 0, 2]


def test_nan_and_infinity_are_kept():
    matrix = make_csr(np.array([np.nan, -0.0, np.inf]), [0, 1, 2], [0, 3], (1, 4))
    found = read(SparseSource(matrix), [0])[0][0]
    assert np.isnan(found[0])
    assert found[2:].tolist() == [np.inf, 0.0]


def test_long_indices_are_accepted():
    matrix = make_csr(np.array([3.0]), np.array([1], np.int64), np.array([0, 0, 1], np.int64), (2, 2))
    assert read(SparseSource(matrix), [1, 0])[0].tolist() == [[0.0, 3.0], [0.0, 0.0]]


def test_matrices_without_columns_or_values_have_rows():
    assert read(SparseSource(sp.csr_array((3, 0))), [0, 2])[0].shape == (2, 0)
    assert read(SparseSource(sp.csr_array((3, 2))), [0, 2])[0].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    padded = PaddedSparseSource(SparseSource(sp.csr_array((3, 2))))
    assert [leaf.tolist() for leaf in read(padded, [0])] == [[[0.0]], [[0]]]


def test_the_arrays_of_the_matrix_are_not_copied():
    matrix = random_matrix()
    assert all(
        map(np.shares_memory, SparseSource(matrix).leaves[0].parts, (matrix.indptr, matrix.indices, matrix.data))
    )
    assert not SparseSource(matrix).immutable


@pytest.mark.parametrize("form", ["csc", "coo", "lil", "dok", "bsr", "dia"])
def test_other_sparse_formats_are_refused(form):
    with pytest.raises(SpecError, match=r"'x' is a .* only from a matrix in CSR format.*matrix\.tocsr\(\)"):
        SparseSource({"x": random_matrix().asformat(form)})


def test_a_sparse_vector_is_refused():
    with pytest.raises(SpecError, match="Pass a matrix with 2 axes"):
        SparseSource(sp.csr_array(np.array([0.0, 1.0])))


@pytest.mark.parametrize(
    ("columns", "starts"),
    [([0, 9], [0, 1, 2]), ([0, -1], [0, 1, 2]), ([0, 1], [0, 2, 1]), ([0, 1], [0, 1, 9]), ([0, 1], [1, 1, 2])],
)
def test_a_damaged_matrix_is_refused(columns, starts):
    matrix = make_csr(np.array([1.0, 2.0]), columns, starts, (2, 3))
    with pytest.raises(SpecError, match=r"'array' is not a valid CSR matrix: .*Build the matrix again"):
        SparseSource(matrix)


def test_fields_of_different_lengths_are_refused():
    with pytest.raises(SpecError, match="differ in their number of rows: 'x' has 40, 'y' has 3"):
        SparseSource({"x": random_matrix(), "y": np.arange(3)})

"""Sources of in-memory arrays with many layouts and dtypes, and objects that are no arrays."""

import sys

import numpy as np
import pytest

import forebay as fb
from forebay.errors import SpecError
from forebay.sources.arrays import ArraySource
from forebay.testing.sources import SourceTests


class ArrayTests(SourceTests):
    """A source of a single array; its rows must equal the array."""

    def make_array(self):
        raise NotImplementedError

    def make_source(self, tmp_path):
        array = self.make_array()
        return ArraySource(array), array


class TestTree(SourceTests):
    def make_source(self, tmp_path):
        tree = {"x": np.arange(60.0).reshape(20, 3), "pair": (np.arange(20, dtype="i2"), np.arange(20) % 2 == 0)}
        return ArraySource(tree), tree


class TestCOrdered(ArrayTests):
    def make_array(self):
        return np.arange(24 * 6, dtype="f4").reshape(24, 2, 3)


class TestScalars(ArrayTests):
    def make_array(self):
        return np.arange(33, dtype="u1")


class TestColumnSlice(ArrayTests):
    def make_array(self):
        return np.arange(200, dtype="i4").reshape(20, 10)[:, 2:7]


class TestEveryThirdRow(ArrayTests):
    def make_array(self):
        return np.arange(300, dtype="i4").reshape(60, 5)[::3]


class TestReversedRows(ArrayTests):
    def make_array(self):
        return np.arange(100, dtype="i4").reshape(20, 5)[::-1, ::-1]


class TestFortranOrdered(ArrayTests):
    def make_array(self):
        return np.asfortranarray(np.arange(20 * 12, dtype="f8").reshape(20, 3, 4))


class TestTransposedAxes(ArrayTests):
    def make_array(self):
        return np.arange(20 * 12, dtype="f8").reshape(3, 20, 4).transpose(1, 2, 0)


class TestUnaligned(ArrayTests):
    def make_array(self):
        return np.frombuffer(bytes(range(241)), np.uint8)[1:].view("f4").reshape(20, 3)


class TestUnalignedFortranOrdered(ArrayTests):
    def make_array(self):
        return np.ndarray((20, 3), "f4", bytes(range(241)), offset=1, order="F")


class TestFieldView(ArrayTests):
    def make_array(self):
        records = np.zeros(20, np.dtype([("flag", "u1"), ("x", "f4", (3,))]))
        records["x"] = np.arange(60).reshape(20, 3)
        return records["x"]


class TestStructured(ArrayTests):
    def make_array(self):
        return np.array([(i, i / 2) for i in range(20)], np.dtype([("a", "i4"), ("b", "f8")]))


class TestBigEndian(ArrayTests):
    def make_array(self):
        return np.arange(60, dtype=">i4").reshape(20, 3)


class TestBigEndianColumns(ArrayTests):
    def make_array(self):
        return np.arange(200, dtype=">c16").reshape(20, 10)[:, ::2]


class TestBroadcastRows(ArrayTests):
    def make_array(self):
        return np.broadcast_to(np.arange(5, dtype="i8"), (20, 5))


class TestBroadcastColumns(ArrayTests):
    def make_array(self):
        return np.broadcast_to(np.arange(20, dtype="i8")[:, None], (20, 5))


class TestRowsWithoutBytes(ArrayTests):
    def make_array(self):
        return np.zeros((20, 0, 3), "f4")


class TestNoRows(ArrayTests):
    def make_array(self):
        return np.zeros((0, 3), "f4")


class TestOneRow(ArrayTests):
    def make_array(self):
        return np.arange(12, dtype="i2").reshape(2, 6)[1:, ::2]


class TestText(ArrayTests):
    def make_array(self):
        return np.array([f"row {i}" for i in range(20)])


class TestReadOnly(ArrayTests):
    def make_array(self):
        array = np.arange(40.0).reshape(20, 2)
        array.flags.writeable = False
        return array


def test_the_memory_region_of_an_array_has_its_address_and_size():
    array = np.arange(60.0).reshape(20, 3)
    (region,) = ArraySource(array).memory()
    assert (region.address, region.nbytes, region.writable) == (array.ctypes.data, array.nbytes, True)


def test_the_memory_region_of_a_read_only_array_is_not_writable():
    array = np.arange(60.0)
    array.flags.writeable = False
    assert not ArraySource(array).memory()[0].writable


def test_arrays_of_unequal_length_are_refused_with_their_lengths():
    with pytest.raises(SpecError, match=r"'x' has 3, 'y' has 4"):
        ArraySource({"x": np.zeros(3), "y": np.zeros(4)})


def test_python_objects_are_refused():
    with pytest.raises(SpecError, match="Python objects"):
        ArraySource(np.array([{}, {}]))


def test_a_single_value_is_refused():
    with pytest.raises(SpecError, match="single value"):
        ArraySource({"x": np.float32(3)})


class PyDataset:
    """Stands for the class of Keras, which has this name."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        raise AssertionError("the object was read")


class Loader:
    """Stands for a DataLoader or a dataset of tf.data, which are read in sequence."""

    def __len__(self):
        return 2

    def __iter__(self):
        raise AssertionError("the object was read")


class Batches(PyDataset):
    """A loader that a user wrote."""


NO_ARRAYS = {
    "a PyDataset": (Batches, "PyDataset of Keras, which yields batches. Write from_batches"),
    "a loader": (Loader, "Loader, not an array. If it yields batches, write from_batches"),
    "a loader in a tree": (lambda: {"x": Loader()}, "'x' is a Loader"),
    "a generator": (lambda: (number for number in range(3)), "is a generator.*from_generator"),
    "a pipeline": (lambda: fb.from_arrays(np.arange(3)), "is a Pipeline of Forebay already"),
    "a feed": (lambda: fb.from_arrays(np.arange(3)).batch(1).feed("numpy"), "is a Feed of Forebay already"),
    "unequal rows": (lambda: [[1, 2], [3]], r"inhomogeneous part\. Give all rows one shape"),
}


@pytest.mark.slow
def test_datasets_of_pytorch_are_refused():
    from torch.utils.data import Subset, TensorDataset, default_collate

    numbers = TensorDataset(default_collate([1.0, 2.0, 3.0]))
    with pytest.raises(SpecError, match=r"is a dataset of PyTorch.* Write from_arrays\(dataset\.tensors\)"):
        fb.from_arrays(numbers)
    with pytest.raises(SpecError, match=r"Write from_source\(dataset\)"):
        fb.from_arrays({"x": Subset(numbers, [0, 1])})


@pytest.mark.parametrize("case", NO_ARRAYS)
def test_objects_that_are_no_arrays_are_refused_without_a_read(case):
    make, words = NO_ARRAYS[case]
    with pytest.raises(SpecError, match=words):
        fb.from_arrays(make())


class WithInterface:
    """Has the array interface as an attribute of the object, not of the class."""

    def __init__(self):
        self.__array_interface__ = ROWS.__array_interface__

    def __iter__(self):
        return iter(ROWS)


class Proxy:
    """Passes all attributes on to an array."""

    def __getattr__(self, name):
        return getattr(ROWS, name)

    def __iter__(self):
        return iter(ROWS)


class WithBuffer:
    """Has the buffer protocol of Python 3.12."""

    def __buffer__(self, flags):
        return memoryview(ROWS)

    def __iter__(self):
        return iter(ROWS)


ROWS = np.arange(4.0)
READ_BY_NUMPY = [WithInterface, Proxy, *([WithBuffer] if sys.version_info >= (3, 12) else [])]


@pytest.mark.parametrize("kind", READ_BY_NUMPY)
def test_iterable_objects_that_numpy_reads_are_arrays(kind):
    assert ArraySource(kind()).arrays[0].tolist() == ROWS.tolist()

"""Combined sources: the rows of their parts, the extents, and the members of their parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.chunk_policy import ChunkPolicy, ShuffleBlocks
from forebay.core.decision import Decision
from forebay.core.source import AbstractSource, MemoryRegion
from forebay.core.spec import ArraySpec, Structure, flatten
from forebay.sources.arrays import ArraySource
from forebay.sources.combined import JoinedSource, ZippedSource
from forebay.sources.files.many_files import open_files
from forebay.sources.items import ItemSource
from forebay.testing.sources import SourceTests

LENGTHS = (7, 1, 12, 5)


def random_parts(*shape, dtype="f4", lengths=LENGTHS):
    rng = np.random.default_rng(0)
    return [rng.integers(0, 255, (length, *shape)).astype(dtype) for length in lengths]


def pair_of(first, second):
    return Structure(tuple, (0, 1), (first.structure, second.structure))


class TestJoinedArrays(SourceTests):
    def make_source(self, tmp_path):
        parts = random_parts(3)
        return JoinedSource([ArraySource(part) for part in parts]), np.concatenate(parts)


class TestJoinedArraysAtOddAddresses(SourceTests):
    """Rows of 37 bytes in arrays that begin at odd addresses."""

    def make_source(self, tmp_path):
        buffers = random_parts(38, dtype="u1")
        parts = [buffer.reshape(-1)[1 : 1 + 37 * len(buffer)].reshape(-1, 37) for buffer in buffers]
        return JoinedSource([ArraySource(part) for part in parts]), np.concatenate(parts)


def parts_with_gaps(width, gap):
    """Return parts of uint8 rows in one buffer, with `gap` bytes between two parts."""
    nbytes = [width * length for length in LENGTHS]
    buffer = np.random.default_rng(0).integers(0, 255, sum(nbytes) + gap * len(nbytes)).astype("u1")
    starts = np.cumsum([0, *nbytes[:-1]]) + gap * np.arange(len(nbytes))
    return [
        buffer[start : start + size].reshape(-1, width) for start, size in zip(starts.tolist(), nbytes, strict=True)
    ]


class TestJoinedSlicesOfOneArray(SourceTests):
    def make_source(self, tmp_path):
        parts = parts_with_gaps(12, gap=0)
        return JoinedSource([ArraySource(part.view("i4")) for part in parts]), np.concatenate(parts).view("i4")


class TestJoinedSlicesInAnotherOrder(SourceTests):
    def make_source(self, tmp_path):
        parts = parts_with_gaps(12, gap=0)[::-1]
        return JoinedSource([ArraySource(part) for part in parts]), np.concatenate(parts)


class TestJoinedLongRows(SourceTests):
    """Rows of 768 bytes, with 256 bytes between two arrays."""

    def make_source(self, tmp_path):
        parts = parts_with_gaps(768, gap=256)
        return JoinedSource([ArraySource(part) for part in parts]), np.concatenate(parts)


class TestJoinedLongRowsOfOddLength(SourceTests):
    """Rows of 9,001 bytes, with one byte between two arrays."""

    def make_source(self, tmp_path):
        parts = parts_with_gaps(9001, gap=1)
        return JoinedSource([ArraySource(part) for part in parts]), np.concatenate(parts)


class TestJoinedTreesOfDifferentLayouts(SourceTests):
    def make_source(self, tmp_path):
        big, small = random_parts(4, 5, dtype=">i4"), random_parts(6, dtype="u1")
        trees = [{"x": x, "y": y[:, ::2], "none": np.empty((len(x), 0))} for x, y in zip(big, small, strict=True)]
        trees[1]["x"], trees[2]["x"] = np.asfortranarray(trees[1]["x"]), trees[2]["x"][::-1]
        expected = {name: np.concatenate([tree[name] for tree in trees]) for name in trees[0]}
        return JoinedSource([ArraySource(tree) for tree in trees]), expected


class TestJoinedLargeRows(SourceTests):
    def make_source(self, tmp_path):
        parts = random_parts(100, 101, lengths=(3, 1, 4))
        return JoinedSource([ArraySource(part) for part in parts]), np.concatenate(parts)


class TestJoinedArraysFilesAndItems(SourceTests):
    def make_source(self, tmp_path):
        parts = random_parts(3)
        np.save(tmp_path / "a.npy", parts[1])
        np.savez_compressed(tmp_path / "b.npz", parts[2])
        sources = [ArraySource(parts[0]), open_files(tmp_path / "a.npy"), ItemSource(list(parts[3]))]
        return JoinedSource(sources), np.concatenate([parts[0], parts[1], parts[3]])


class TestJoinedJoinedSources(SourceTests):
    def make_source(self, tmp_path):
        parts = random_parts(3)
        first, second, third, fourth = (ArraySource(part) for part in parts)
        return JoinedSource([first, JoinedSource([second, third]), fourth]), np.concatenate(parts)


class TestZippedSources(SourceTests):
    def make_source(self, tmp_path):
        x, (y,) = np.arange(60.0).reshape(20, 3), random_parts(2, lengths=(25,))
        np.save(tmp_path / "y.npy", y)
        first, second = ArraySource({"x": x, "z": x[:, 0]}), open_files(tmp_path / "y.npy")
        return ZippedSource([first, second], pair_of(first, second)), ({"x": x, "z": x[:, 0]}, y[:20])


LAYOUTS = {
    "plain": lambda array: array,
    "gaps": lambda array: np.repeat(array, 2, axis=0)[::2],
    "reversed": lambda array: array[::-1].copy()[::-1],
    "fortran": np.asfortranarray,
    "swapped": lambda array: array.astype(array.dtype.newbyteorder()),
}


@given(
    made=st.lists(st.tuples(st.integers(1, 9), st.sampled_from(list(LAYOUTS))), min_size=1, max_size=12), data=st.data()
)
def test_joined_arrays_of_any_layout_give_the_rows_of_their_concatenation(made, data):
    shape, dtype = (3,), np.dtype("i2")
    random = random_parts(*shape, dtype=dtype, lengths=[length for length, _ in made])
    parts = [LAYOUTS[layout](part) for part, (_, layout) in zip(random, made, strict=True)]
    source, whole = JoinedSource([ArraySource(part) for part in parts]), np.concatenate(parts)
    rows = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=40)), np.intp)
    out = [np.empty((len(rows), *shape), dtype)]
    source.gather(rows, out)
    assert out[0].tolist() == whole[rows].tolist()


def test_rows_that_differ_in_shape_come_in_the_requested_order():
    words = [np.arange(length) for length in (1, 4, 2, 3)]
    source = JoinedSource([ItemSource(words[:2]), ItemSource(words[2:])])
    rows = source.gather_rows(np.array([3, 0, 2, 1, 3]))
    assert [len(leaf) for (leaf,) in rows] == [3, 1, 2, 4, 3]
    assert [len(leaf) for (leaf,) in source.gather_rows(slice(1, 3))] == [4, 2]
    zipped = ZippedSource([ItemSource(words), ItemSource(words)], flatten((0, 0))[1])
    assert [[len(leaf) for leaf in row] for row in zipped.gather_rows(np.array([2, 1]))] == [[2, 2], [4, 4]]


def located_values(source, leaf, row):
    """Read a row through its memory extent."""
    (extent,) = [each for each in source.memory_extents()[leaf] if each.first <= row < each.first + each.rows]
    spec, address = source.specs[leaf], extent.address + (row - extent.first) * extent.stride
    interface = {"version": 3, "shape": spec.shape, "typestr": spec.dtype.str, "data": (address, True)}
    return np.asarray(type("Row", (), {"__array_interface__": interface})()).tolist()


def test_the_memory_extents_of_joined_arrays_locate_every_row():
    parts = random_parts(3)
    source, whole = JoinedSource([ArraySource({"x": x, "y": x[:, 1:]}) for x in parts]), np.concatenate(parts)
    for row in range(len(source)):
        assert located_values(source, 0, row) == whole[row].tolist()
        assert located_values(source, 1, row) == whole[row, 1:].tolist()
    assert len(source.memory()) == 2 * len(parts)


def test_the_memory_extents_of_zipped_arrays_end_with_the_shortest():
    x, y = np.arange(20.0), np.arange(60.0).reshape(30, 2)
    first, second = JoinedSource([ArraySource(y[:15]), ArraySource(y[15:])]), ArraySource(x)
    source = ZippedSource([first, second], pair_of(first, second))
    assert [[(each.first, each.rows) for each in leaf] for leaf in source.memory_extents()] == [
        [(0, 15), (15, 5)],
        [(0, 20)],
    ]
    assert located_values(source, 0, 19) == y[19].tolist()
    assert located_values(source, 1, 19) == 19.0


def test_a_combined_source_has_no_extents_if_one_part_has_none(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(4.0))
    items, array, file = ItemSource(list(np.arange(3.0))), ArraySource(np.arange(3.0)), open_files(tmp_path / "x.npy")
    for source in (JoinedSource([array, items]), ZippedSource([array, items], pair_of(array, items))):
        assert (source.memory(), source.memory_extents(), source.file_extents()) == ([], [], [])
    assert JoinedSource([array, file]).file_extents() == []
    assert JoinedSource([array, file]).memory_extents() != []


def test_file_extents_have_the_rows_of_the_joined_source(tmp_path):
    for name, length in (("a", 4), ("b", 6)):
        np.save(tmp_path / f"{name}.npy", np.arange(float(length)))
    source = JoinedSource([open_files(tmp_path / "a.npy"), open_files(tmp_path / "b.npy")])
    assert [(each.first, each.rows, each.path.name) for each in source.file_extents()[0]] == [
        (0, 4, "a.npy"),
        (4, 6, "b.npy"),
    ]


class Recorded(AbstractSource):
    """A source of ten rows that records the calls of its methods."""

    def __init__(self, **members):
        self.specs, self.structure = (ArraySpec((), "f4"),), Structure(None)
        self.calls = []
        for name, value in members.items():
            setattr(self, name, value)

    held_nbytes = 5

    def __len__(self):
        return 10

    def gather(self, rows, out):
        out[0][:] = np.arange(10)[rows]

    def memory(self):
        return [MemoryRegion(4096, 40, writable=False)]

    def decompress(self):
        self.calls.append("decompress")

    def counters(self):
        return {"requests": 3}

    def decisions(self):
        return [Decision("cache", "none", "no folder")]

    def close(self):
        self.calls.append("close")


@pytest.mark.parametrize("combine", [JoinedSource, lambda parts: ZippedSource(parts, pair_of(*parts))])
def test_a_combined_source_combines_the_members_of_its_parts(combine):
    parts = [
        Recorded(immutable=True, version="a", shuffle_blocks=ShuffleBlocks(64, held=9), chunk_policy=ChunkPolicy(64)),
        Recorded(immutable=False, version="b", shuffle_blocks=ShuffleBlocks(32, held=4), row_by_row=True),
    ]
    source = combine(parts)
    source.decompress()
    source.close()
    assert [part.calls for part in parts] == [["decompress", "close"]] * 2
    assert (source.immutable, source.version, source.row_by_row, source.held_nbytes) == (False, "a+b", True, 10)
    assert (source.shuffle_blocks, source.chunk_policy.rows) == (ShuffleBlocks(64, held=4), 64)
    assert source.counters() == {"requests": 6}
    assert source.decisions() == [Decision("cache", "none", "no folder")]
    assert source.read_decision.choice == "2 sources"
    assert combine([Recorded(immutable=True), Recorded(immutable=True)]).immutable
    assert combine([Recorded(), Recorded()]).version == ""
    assert combine([Recorded(), Recorded()]).prefetch(iter([])) is None

"""Chunked columns: each chunk is decompressed as rarely as the memory budget allows."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import forebay as fb
from forebay.core.chunk_policy import ChunkPolicy, ShuffleBlocks
from forebay.core.source import AbstractSource
from forebay.core.spec import ArraySpec
from forebay.sources.files.chunked import ChunkedColumn, chunk_policy_of, share_budget
from forebay.sources.files.segmented import SegmentedColumn

ROWS = np.arange(600, dtype="i8").reshape(200, 3)
CHUNK_NBYTES = 240  # 10 rows of 3 numbers


class Decompressor:
    """Decompresses chunks of an array and records the calls."""

    def __init__(self, starts):
        self.starts, self.calls = starts, []

    def __call__(self, chunk, target):
        self.calls.append(chunk)
        target[...] = ROWS[self.starts[chunk] : self.starts[chunk + 1]]


def make(starts, *, held_nbytes):
    decompressor = Decompressor(np.asarray(starts))
    leaf = ChunkedColumn(ArraySpec((3,), "int64"), decompressor.starts, decompressor)
    leaf.set_budget(held_nbytes)
    return leaf, decompressor


def gather(leaf, rows):
    out = np.empty((len(rows), 3), "i8")
    leaf.gather(rows, out)
    return out


EVEN = [*range(0, 200, 10), 200]  # chunks of 10 rows
UNEVEN = [0, 1, 30, 30, 57, 190, 200]


@pytest.mark.parametrize("starts", [EVEN, UNEVEN])
@pytest.mark.parametrize("held_nbytes", [0, 1000, 2000, 10**6])
def test_rows_are_correct_with_any_budget(starts, held_nbytes):
    leaf, _ = make(starts, held_nbytes=held_nbytes)
    rows = np.random.default_rng(0).integers(0, 200, 500)
    assert (gather(leaf, rows) == ROWS[rows]).all()
    assert (gather(leaf, np.sort(rows)) == ROWS[np.sort(rows)]).all()


def test_each_chunk_is_decompressed_once_if_the_budget_holds_all():
    leaf, decompressor = make(EVEN, held_nbytes=ROWS.nbytes)
    [gather(leaf, np.random.default_rng(seed).permutation(200)) for seed in range(3)]
    assert sorted(decompressor.calls) == list(range(20))


def test_reads_within_the_held_chunks_decompress_each_chunk_once():
    leaf, decompressor = make(EVEN, held_nbytes=8 * CHUNK_NBYTES)
    gather(leaf, np.repeat(np.arange(20), 3))
    gather(leaf, np.arange(20)[::-1])
    assert sorted(decompressor.calls) == [0, 1]


def test_the_least_recently_used_chunk_is_evicted():
    leaf, decompressor = make(EVEN, held_nbytes=4 * CHUNK_NBYTES)
    [gather(leaf, np.array([chunk * 10])) for chunk in [0, 1, 2, 3, 0, 4, 0, 1]]
    assert decompressor.calls == [0, 1, 2, 3, 4, 1]


def test_held_bytes_stay_within_the_budget():
    leaf, _ = make(EVEN, held_nbytes=5 * CHUNK_NBYTES)
    gather(leaf, np.random.default_rng(0).permutation(200))
    assert leaf.held_nbytes == 5 * CHUNK_NBYTES


def test_a_chunk_that_two_threads_need_is_decompressed_once():
    decompressor, together = Decompressor(np.asarray(EVEN)), threading.Barrier(2)
    leaf = ChunkedColumn(ArraySpec((3,), "int64"), decompressor.starts, decompressor)
    leaf.set_budget(ROWS.nbytes)

    def read(_):
        together.wait()
        return gather(leaf, np.arange(200))

    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(read, range(2)))
    assert all((rows == ROWS).all() for rows in results)
    assert sorted(decompressor.calls) == list(range(20))


def test_more_threads_than_cached_chunks_wait_for_each_other():
    leaf, _ = make(EVEN, held_nbytes=0)
    batches = [np.random.default_rng(seed).integers(0, 200, 40) for seed in range(200)]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda rows: gather(leaf, rows), batches))
    assert all((rows == ROWS[batch]).all() for rows, batch in zip(results, batches, strict=True))


def test_a_chunk_that_failed_is_decompressed_again():
    broken = [True]

    def decompress(chunk, target):
        if broken.pop():
            raise OSError("not now")
        target[...] = ROWS[chunk * 10 : chunk * 10 + 10]
        broken.append(False)

    leaf = ChunkedColumn(ArraySpec((3,), "int64"), np.asarray(EVEN), decompress)
    leaf.set_budget(ROWS.nbytes)
    with pytest.raises(OSError, match="not now"):
        gather(leaf, np.arange(30))
    broken.append(False)
    assert (gather(leaf, np.arange(30)) == ROWS[:30]).all()


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8"])
@pytest.mark.parametrize("width", [1, 3, 16, 331])
@pytest.mark.parametrize("gap", [0, 1, 8, 64])
def test_rows_of_segments_are_correct_at_any_offset(dtype, width, gap):
    rows = np.random.default_rng(0).integers(0, 100, (40, width)).astype(dtype)
    starts, offsets, memory = np.array([0, 7, 20, 40]), [], b"head"
    for start, stop in [(0, 7), (7, 20), (20, 40)]:
        offsets.append(len(memory))
        memory += rows[start:stop].tobytes() + b"-" * gap
    leaf = SegmentedColumn(ArraySpec((width,), dtype), starts, np.frombuffer(memory, "u1"), np.array(offsets))
    wanted, out = np.random.default_rng(1).integers(0, 40, 60), np.empty((60, width), dtype)
    leaf.gather(wanted, out)
    assert (out == rows[wanted]).all()


def test_there_are_no_shuffle_blocks_if_the_budget_holds_all_rows():
    assert ChunkPolicy(10, row_nbytes=8).shuffle_blocks(1000, 8000) is None


def test_there_are_no_shuffle_blocks_for_chunks_of_one_row():
    assert ChunkPolicy(1, row_nbytes=8).shuffle_blocks(1000, 80) is None


def test_shuffle_blocks_are_chunks_and_count_how_many_fit():
    assert ChunkPolicy(10, row_nbytes=8).shuffle_blocks(1000, 800) == ShuffleBlocks(10, held=10)


@pytest.mark.parametrize("held", [0, 1])
def test_chunks_that_are_too_large_to_mix_are_reported(held):
    policy = ChunkPolicy(10, row_nbytes=800)
    why = policy.explain(1000, ShuffleBlocks(10, held)).why
    assert why.startswith("fewer than 2 chunks of 7.8 KiB fit in memory")


def test_small_leaves_do_not_change_the_chunk_policy():
    images, labels = (
        make(EVEN, held_nbytes=0)[0],
        ChunkedColumn(ArraySpec((), "u1"), np.array([0, 200]), lambda *_: None),
    )
    assert chunk_policy_of([images, labels]).rows == 10


def test_small_leaves_are_held_whole_and_large_leaves_share_the_rest():
    images, labels = (
        make(EVEN, held_nbytes=0)[0],
        ChunkedColumn(ArraySpec((), "u1"), np.array([0, 200]), lambda *_: None),
    )
    share_budget([images, labels], 200 + 7 * CHUNK_NBYTES)
    gather(images, np.arange(200))
    labels.gather(np.arange(200), np.empty(200, "u1"))
    assert (images.held_nbytes, labels.held_nbytes) == (7 * CHUNK_NBYTES, 200)


@pytest.mark.parametrize(
    ("rows", "held", "max_open_blocks"), [(10_000, 1, 2), (10_000, 10, 5), (10_000, 1000, 16), (64, 10_000, 1024)]
)
def test_a_shuffle_opens_half_of_the_held_blocks_within_limits(rows, held, max_open_blocks):
    assert ShuffleBlocks(rows, held).max_open_blocks == max_open_blocks


class Chunked(AbstractSource):
    """A source that proposes shuffle blocks."""

    shuffle_blocks = ShuffleBlocks(10, held=8)
    specs, structure = fb.from_arrays(ROWS).specs, fb.from_arrays(ROWS).structure

    def __len__(self):
        return len(ROWS)

    def gather(self, rows, out):
        out[0][...] = ROWS[rows]


def test_a_shuffle_uses_the_shuffle_blocks_of_its_source():
    order = fb.from_source(Chunked()).shuffle(seed=3).order
    assert (order.block_rows, order.max_open_blocks) == (10, 4)


def test_an_explicit_block_overrides_the_source():
    order = fb.from_source(Chunked()).shuffle(seed=3, block=25, mix=3).order
    assert (order.block_rows, order.max_open_blocks) == (25, 3)


def test_block_none_shuffles_exactly():
    assert fb.from_source(Chunked()).shuffle(seed=3, block=None).order.describe()[0] == "shuffled"


def test_the_reason_does_not_claim_that_chunks_of_one_row_fit_in_memory():
    policy = ChunkPolicy(1, 100)
    assert policy.explain(10**9, policy.shuffle_blocks(10**9, 1000)).why.startswith("a chunk is a single row")

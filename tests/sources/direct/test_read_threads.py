"""Requests to the last byte: short reads, errors, files that change, and memory that nobody writes to afterwards."""

import errno
import os
import time
import weakref

import numpy as np
import pytest
from tests.sources.direct.readers import row_reader, space_of

from forebay.errors import SourceChangedError, SourceError
from forebay.sources.direct import open_files as files_module
from forebay.sources.direct import row_reader as rows
from forebay.sources.direct.copy_rows import copy_rows
from forebay.sources.direct.io_uring import DEPTH, ENTRIES, Ring
from forebay.sources.direct.open_files import OpenFiles, aligned_memory, direct_alignment
from forebay.sources.direct.read_ranges import merge
from forebay.sources.direct.read_threads import PlainThreads, RingThreads, await_reads, read_all, read_one_by_one
from forebay.sources.formats.npy import open_npy

NBYTES = 3_000_000


@pytest.fixture
def source(tmp_path):
    np.save(tmp_path / "bytes.npy", np.random.default_rng(0).integers(0, 256, NBYTES, np.uint8))
    return open_npy(tmp_path / "bytes.npy")


@pytest.fixture(params=[1, 512], ids=["through the page cache", "direct"])
def files(request, source):
    space = space_of(source)
    if request.param > 1 and direct_alignment(space.paths) != request.param:
        pytest.skip("this file system refuses direct reads of 512 bytes")
    opened = OpenFiles(space, alignment=request.param)
    yield opened
    opened.close()


def whole(files):
    """All of the file, and memory for it."""
    runs = merge(np.array([0]), files.nbytes[:1], alignment=files.alignment)
    return runs.requests(), aligned_memory(runs.total_nbytes)


def content(files):
    return np.fromfile(files.path(0), np.uint8)


def ring_read():
    return Ring().read


@pytest.mark.parametrize("make_read", [ring_read, lambda: read_one_by_one])
def test_a_file_is_read_to_its_last_byte(files, make_read):
    requests, memory = whole(files)
    read_all(make_read(), files, requests, memory)
    assert np.array_equal(memory[:NBYTES], content(files)[:NBYTES])


@pytest.mark.parametrize("count", [1, DEPTH, DEPTH + 1, ENTRIES + 3])
def test_a_ring_reads_any_number_of_pieces_again_and_again(files, count):
    ring, memory = Ring(), aligned_memory(count * 512)
    for seed in range(3):
        offsets = np.random.default_rng(seed).integers(0, NBYTES // 512, count) * 512
        numbers, nbytes = files.numbers[np.zeros(count, np.intp)], np.full(count, 512)
        assert (ring.read(numbers, offsets, nbytes, memory, np.arange(count) * 512) == 512).all()
        wanted = content(files)[offsets[:, None] + np.arange(512)]
        assert np.array_equal(memory.reshape(count, 512), wanted)


@pytest.mark.parametrize("most", [512, 1024, 100_000])
def test_short_reads_are_gone_on_with(files, most):
    def short(numbers, offsets, nbytes, memory, places):
        return read_one_by_one(numbers, offsets, np.minimum(nbytes, most), memory, places)

    requests, memory = whole(files)
    in_pieces = merge(requests.starts, np.minimum(requests.nbytes, 20_000), alignment=files.alignment).requests()
    wanted = aligned_memory(in_pieces.nbytes.sum())
    read_all(read_one_by_one, files, in_pieces, wanted)
    read_all(short, files, in_pieces, memory)
    assert np.array_equal(memory[: wanted.nbytes], wanted)


@pytest.mark.parametrize("code", [errno.EINTR, errno.EAGAIN])
def test_interrupted_reads_are_made_again(files, code):
    answers = iter([-code, -code])

    def interrupted(*asked):
        code = next(answers, None)
        return read_one_by_one(*asked) if code is None else np.full(len(asked[1]), code)

    requests, memory = whole(files)
    read_all(interrupted, files, requests, memory)
    assert np.array_equal(memory[:NBYTES], content(files)[:NBYTES])


def test_an_error_of_the_disk_names_the_file_and_the_place(files):
    requests, memory = whole(files)
    with pytest.raises(SourceError, match=r"at byte 1048576 of .*bytes.npy: Input/output error") as raised:
        read_all(lambda *asked: np.array([1 << 20, -errno.EIO, 1 << 20]), files, requests, memory)
    assert raised.value.__cause__.errno == errno.EIO


def test_a_disk_that_never_gives_more_is_not_asked_for_ever(files):
    requests, memory = whole(files)
    with pytest.raises(SourceError, match="asked 64 times"):
        read_all(lambda *asked: np.zeros(len(asked[1]), np.int64), files, requests, memory)


def test_a_file_that_is_cut_short_is_an_error_and_not_a_signal(files):
    os.truncate(files.path(0), 1_000_000)
    requests, memory = whole(files)
    with pytest.raises(SourceChangedError, match="had 3000128 bytes when it was opened and has 1000000 now"):
        read_all(read_one_by_one, files, requests, memory)


def test_a_file_that_was_replaced_before_it_is_opened_again_is_refused(source):
    path = space_of(source).paths[0]
    path.unlink()
    np.save(path, np.zeros(10))
    with pytest.raises(SourceChangedError, match="was changed or replaced"):
        OpenFiles(space_of(source), alignment=1)


def test_a_file_that_is_gone_is_refused(source):
    space_of(source).paths[0].unlink()
    with pytest.raises(SourceChangedError, match="is gone now"):
        OpenFiles(space_of(source), alignment=1)


@pytest.mark.parametrize("name", ["_done", "_enter"])
def test_an_interrupt_inside_a_ring_leaves_nothing_under_way(files, monkeypatch, name):
    ring, memory, places = Ring(), aligned_memory(1 << 20), np.arange(200) * 512
    asked = (files.numbers[np.zeros(200, np.intp)], places, np.full(200, 512), memory, places)
    monkeypatch.setattr(ring, name, interrupted_once(getattr(ring, name)))
    with pytest.raises(KeyboardInterrupt):
        ring.read(*asked)
    memory[:] = 0
    time.sleep(0.05)
    assert not memory.any()
    assert (ring.read(*asked) == 512).all()
    assert np.array_equal(memory[: 200 * 512], content(files)[: 200 * 512])


def interrupted_once(function):
    """The function, which is interrupted the first time, when it has done its work and before it tells."""
    errors = [KeyboardInterrupt()]

    def interrupted(*given):
        told = function(*given)
        if errors:
            raise errors.pop()
        return told

    return interrupted


def test_a_bad_file_number_is_an_error_of_its_read_alone(files):
    numbers = np.array([files.numbers[0], -1, files.numbers[0]])
    given = Ring().read(numbers, np.zeros(3, np.int64), np.full(3, 512), aligned_memory(4096), np.arange(3) * 512)
    assert given.tolist() == [512, -errno.EBADF, 512]


def test_a_ring_that_cannot_be_had_is_an_os_error(monkeypatch):
    monkeypatch.setattr("forebay.sources.direct.io_uring._SETUP", 100_000)  # a system call that nobody has
    with pytest.raises(OSError, match="io_uring: Function not implemented"):
        Ring()


@pytest.mark.parametrize("make_threads", [RingThreads, PlainThreads])
def test_threads_share_requests_and_read_them_all(files, make_threads, monkeypatch):
    monkeypatch.setattr(make_threads, "share_nbytes", 100_000)
    threads, (requests, memory) = make_threads(), whole(files)
    in_pieces = merge(requests.starts, np.minimum(requests.nbytes, 20_000), alignment=files.alignment).requests()
    wanted = aligned_memory(in_pieces.nbytes.sum())
    read_all(read_one_by_one, files, in_pieces, wanted)
    await_reads(threads.start(files, in_pieces, memory))
    threads.close()
    assert np.array_equal(memory[: wanted.nbytes], wanted)


def test_rows_that_lie_close_are_read_together(source):
    reader, rows = row_reader(source), np.arange(0, 100_000, 1000)
    part = reader.start(rows, aligned_memory(1 << 20))
    await_reads(part.reads)
    assert len(part.runs.starts) == 1
    reader.close()


def test_a_group_is_read_while_the_one_before_is_still_gathered(source):
    reader, groups = row_reader(source, trays=2), {name: np.arange(100) * 1000 + name for name in range(3)}
    started, start = [], reader.start
    reader.start = lambda rows, tray: started.append(rows[0]) or start(rows, tray)
    passed, out = reader.begin(iter(groups.items())), np.empty(100, np.uint8)
    passed.gather(0, groups[0], [out])
    assert started == [0, 1, 2]
    reader.close()


def test_a_pass_that_was_given_up_holds_no_memory(source, monkeypatch):
    made = []
    monkeypatch.setattr(rows, "aligned_memory", lambda nbytes: remembered(made, aligned_memory(nbytes)))
    reader = row_reader(source)
    passed = reader.begin(iter([(0, np.arange(10))]))
    passed.gather(0, np.arange(10), [np.empty(10, np.uint8)])
    reader.close()
    assert [memory() for memory in made] == [None, None]


def remembered(made, memory):
    made.append(weakref.ref(memory))
    return memory


@pytest.mark.parametrize(
    ("row_nbytes", "places"),
    [(4096, [640, 9344, 128]), (4096, [0, 4096]), (100, [7, 512, 1040]), (64, [64, 128]), (20_000, [7, 30_000])],
)
def test_rows_are_copied_from_wherever_they_lie(row_nbytes, places):
    memory = np.random.default_rng(0).integers(0, 256, 1 << 16, np.uint8)
    out = np.empty((len(places), row_nbytes), np.uint8)
    copy_rows(memory, np.array(places), out)
    assert np.array_equal(out, memory[np.array(places)[:, None] + np.arange(row_nbytes)])


def test_a_read_that_would_end_outside_its_memory_is_refused(files):
    with pytest.raises(ValueError, match="outside its memory"):
        Ring().read(files.numbers[:1], np.array([0]), np.array([8192]), aligned_memory(4096), np.array([0]))


def test_a_file_system_that_refuses_direct_reads_as_a_file_is_opened_is_noticed(source, monkeypatch):
    monkeypatch.setattr(files_module, "_DIRECT", os.O_DIRECT | os.O_DIRECTORY)  # refused on every file system
    assert direct_alignment(space_of(source).paths) is None


def test_a_file_system_that_refuses_direct_reads_as_a_file_is_read_is_noticed(source, monkeypatch):
    monkeypatch.setattr(files_module, "_ALIGNMENTS", (100,))  # refused by every disk
    assert direct_alignment(space_of(source).paths) is None

"""Reads continue after short reads and interrupts, or raise an error. Afterwards, no read writes to memory."""

import errno
import os
import time
import weakref

import numpy as np
import pytest
from tests.sources.direct.readers import row_reader, space_of

from forebay.errors import SourceChangedError, SourceError
from forebay.sources.direct import open_files as files_module
from forebay.sources.direct import row_reader as row_reader_module
from forebay.sources.direct.copy_rows import copy_rows
from forebay.sources.direct.io_uring import DEPTH, ENTRIES, IoUring
from forebay.sources.direct.open_files import OpenFiles, aligned_memory, direct_alignment
from forebay.sources.direct.read_ranges import merge_ranges
from forebay.sources.direct.read_threads import IoUringThreads, PreadThreads, pread_each, read_fully, wait_for_reads
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


def whole_file_reads(files):
    """Return the reads for a whole file, and memory for them."""
    ranges = merge_ranges(np.array([0]), files.nbytes[:1], alignment=files.alignment)
    return ranges.split(), aligned_memory(ranges.total_nbytes)


def content(files):
    return np.fromfile(files.path(0), np.uint8)


def ring_read():
    return IoUring().read


@pytest.mark.parametrize("make_read", [ring_read, lambda: pread_each])
def test_a_file_is_read_to_its_last_byte(files, make_read):
    reads, memory = whole_file_reads(files)
    read_fully(make_read(), files, reads, memory)
    assert np.array_equal(memory[:NBYTES], content(files)[:NBYTES])


@pytest.mark.parametrize("count", [1, DEPTH, DEPTH + 1, ENTRIES + 3])
def test_a_ring_completes_any_number_of_reads_repeatedly(files, count):
    ring, memory = IoUring(), aligned_memory(count * 512)
    for seed in range(3):
        offsets = np.random.default_rng(seed).integers(0, NBYTES // 512, count) * 512
        descriptors, nbytes = files.descriptors[np.zeros(count, np.intp)], np.full(count, 512)
        assert (ring.read(descriptors, offsets, nbytes, memory, np.arange(count) * 512) == 512).all()
        wanted = content(files)[offsets[:, None] + np.arange(512)]
        assert np.array_equal(memory.reshape(count, 512), wanted)


@pytest.mark.parametrize("max_nbytes", [512, 1024, 100_000])
def test_short_reads_are_continued(files, max_nbytes):
    def short(descriptors, offsets, nbytes, memory, memory_offsets):
        return pread_each(descriptors, offsets, np.minimum(nbytes, max_nbytes), memory, memory_offsets)

    reads, memory = whole_file_reads(files)
    split_reads = merge_ranges(reads.starts, np.minimum(reads.nbytes, 20_000), alignment=files.alignment).split()
    wanted = aligned_memory(split_reads.nbytes.sum())
    read_fully(pread_each, files, split_reads, wanted)
    read_fully(short, files, split_reads, memory)
    assert np.array_equal(memory[: wanted.nbytes], wanted)


@pytest.mark.parametrize("code", [errno.EINTR, errno.EAGAIN])
def test_interrupted_reads_are_repeated(files, code):
    answers = iter([-code, -code])

    def interrupted(*arguments):
        code = next(answers, None)
        return pread_each(*arguments) if code is None else np.full(len(arguments[1]), code)

    reads, memory = whole_file_reads(files)
    read_fully(interrupted, files, reads, memory)
    assert np.array_equal(memory[:NBYTES], content(files)[:NBYTES])


def test_a_disk_error_names_the_file_and_the_position(files):
    reads, memory = whole_file_reads(files)
    with pytest.raises(SourceError, match=r"at byte 1048576 of .*bytes.npy: Input/output error") as raised:
        read_fully(lambda *arguments: np.array([1 << 20, -errno.EIO, 1 << 20]), files, reads, memory)
    assert raised.value.__cause__.errno == errno.EIO


def test_a_read_without_progress_fails_after_64_attempts(files):
    reads, memory = whole_file_reads(files)
    with pytest.raises(SourceError, match="in 64 attempts"):
        read_fully(lambda *arguments: np.zeros(len(arguments[1]), np.int64), files, reads, memory)


def test_a_truncated_file_raises_an_error(files):
    os.truncate(files.path(0), 1_000_000)
    reads, memory = whole_file_reads(files)
    with pytest.raises(SourceChangedError, match="had 3000128 bytes when it was opened and has 1000000 now"):
        read_fully(pread_each, files, reads, memory)


def test_a_file_that_was_replaced_before_it_is_opened_again_is_refused(source):
    path = space_of(source).paths[0]
    path.unlink()
    np.save(path, np.zeros(10))
    with pytest.raises(SourceChangedError, match="was changed or replaced"):
        OpenFiles(space_of(source), alignment=1)


def test_a_deleted_file_is_refused(source):
    space_of(source).paths[0].unlink()
    with pytest.raises(SourceChangedError, match="was deleted after it was opened"):
        OpenFiles(space_of(source), alignment=1)


@pytest.mark.parametrize("name", ["_count_completions", "_enter"])
def test_no_read_is_in_progress_after_an_interrupt(files, monkeypatch, name):
    ring, memory, offsets = IoUring(), aligned_memory(1 << 20), np.arange(200) * 512
    read_arguments = (files.descriptors[np.zeros(200, np.intp)], offsets, np.full(200, 512), memory, offsets)
    monkeypatch.setattr(ring, name, interrupted_once(getattr(ring, name)))
    with pytest.raises(KeyboardInterrupt):
        ring.read(*read_arguments)
    memory[:] = 0
    time.sleep(0.05)
    assert not memory.any()
    assert (ring.read(*read_arguments) == 512).all()
    assert np.array_equal(memory[: 200 * 512], content(files)[: 200 * 512])


def interrupted_once(function):
    """Wrap a function so that its first call raises KeyboardInterrupt after the work is done."""
    errors = [KeyboardInterrupt()]

    def interrupted(*arguments):
        result = function(*arguments)
        if errors:
            raise errors.pop()
        return result

    return interrupted


def test_a_bad_file_descriptor_fails_only_its_own_read(files):
    descriptors = np.array([files.descriptors[0], -1, files.descriptors[0]])
    results = IoUring().read(
        descriptors, np.zeros(3, np.int64), np.full(3, 512), aligned_memory(4096), np.arange(3) * 512
    )
    assert results.tolist() == [512, -errno.EBADF, 512]


def test_a_kernel_without_io_uring_raises_os_error(monkeypatch):
    monkeypatch.setattr("forebay.sources.direct.io_uring._SETUP", 100_000)  # a system call that does not exist
    with pytest.raises(OSError, match="io_uring: Function not implemented"):
        IoUring()


@pytest.mark.parametrize("make_threads", [IoUringThreads, PreadThreads])
def test_threads_complete_all_jobs(files, make_threads, monkeypatch):
    monkeypatch.setattr(make_threads, "job_nbytes", 100_000)
    threads, (reads, memory) = make_threads(), whole_file_reads(files)
    split_reads = merge_ranges(reads.starts, np.minimum(reads.nbytes, 20_000), alignment=files.alignment).split()
    wanted = aligned_memory(split_reads.nbytes.sum())
    read_fully(pread_each, files, split_reads, wanted)
    wait_for_reads(threads.start(files, split_reads, memory))
    threads.close()
    assert np.array_equal(memory[: wanted.nbytes], wanted)


def test_rows_close_to_each_other_are_read_together(source):
    reader, rows = row_reader(source), np.arange(0, 100_000, 1000)
    part = reader.start_reads(rows, aligned_memory(1 << 20))
    wait_for_reads(part.reads)
    assert len(part.ranges.starts) == 1
    reader.close()


def test_groups_are_read_before_they_are_gathered(source):
    reader, groups = row_reader(source, buffers=2), {name: np.arange(100) * 1000 + name for name in range(3)}
    started, start = [], reader.start_reads
    reader.start_reads = lambda rows, buffer: started.append(rows[0]) or start(rows, buffer)
    session, out = reader.begin(iter(groups.items())), np.empty(100, np.uint8)
    session.gather(0, groups[0], [out])
    assert started == [0, 1, 2]
    reader.close()


def test_a_closed_reader_frees_its_memory(source, monkeypatch):
    allocated = []
    monkeypatch.setattr(row_reader_module, "aligned_memory", lambda nbytes: record(allocated, aligned_memory(nbytes)))
    reader = row_reader(source)
    session = reader.begin(iter([(0, np.arange(10))]))
    session.gather(0, np.arange(10), [np.empty(10, np.uint8)])
    reader.close()
    assert [memory() for memory in allocated] == [None, None]


def record(allocated, memory):
    allocated.append(weakref.ref(memory))
    return memory


@pytest.mark.parametrize(
    ("row_nbytes", "offsets"),
    [(4096, [640, 9344, 128]), (4096, [0, 4096]), (100, [7, 512, 1040]), (64, [64, 128]), (20_000, [7, 30_000])],
)
def test_rows_are_copied_from_any_offset(row_nbytes, offsets):
    memory = np.random.default_rng(0).integers(0, 256, 1 << 16, np.uint8)
    out = np.empty((len(offsets), row_nbytes), np.uint8)
    copy_rows(memory, np.array(offsets), out)
    assert np.array_equal(out, memory[np.array(offsets)[:, None] + np.arange(row_nbytes)])


def test_a_read_that_ends_outside_its_memory_is_refused(files):
    with pytest.raises(ValueError, match="ends outside its memory"):
        IoUring().read(files.descriptors[:1], np.array([0]), np.array([8192]), aligned_memory(4096), np.array([0]))


def test_direct_io_refused_on_open_is_detected(source, monkeypatch):
    monkeypatch.setattr(files_module, "_O_DIRECT", os.O_DIRECT | os.O_DIRECTORY)  # refused on every file system
    assert direct_alignment(space_of(source).paths) is None


def test_direct_io_refused_on_read_is_detected(source, monkeypatch):
    monkeypatch.setattr(files_module, "_ALIGNMENTS", (100,))  # refused by every disk
    assert direct_alignment(space_of(source).paths) is None

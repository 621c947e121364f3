"""Shared blocks: an attached block has the same memory, arrays keep it alive, and it is always freed."""

import gc
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from forebay.core import shared_memory
from forebay.core.shared_memory import BlockHandle, SharedBlock
from forebay.errors import FeedClosedError, SpecError, WorkerError

NBYTES = 1 << 16
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture(params=["unnamed", "named"])
def kind(request, monkeypatch):
    """Both kinds of shared memory: unnamed on Linux, named on other systems."""
    if request.param == "unnamed" and sys.platform != "linux":
        pytest.skip("unnamed shared memory needs Linux")
    monkeypatch.setattr(shared_memory, "_create", getattr(shared_memory, f"_create_{request.param}"))
    monkeypatch.setattr(shared_memory, "_attach", getattr(shared_memory, f"_attach_{request.param}"))
    return request.param


def array_over(block, dtype="uint8"):
    return np.ndarray((block.nbytes // np.dtype(dtype).itemsize,), dtype, buffer=block.memory)


def open_descriptors():
    """Count the descriptors of blocks only, because threads of other tests may hold other files."""
    return sum("memfd:forebay" in str(link.resolve()) for link in Path("/proc/self/fd").iterdir())


def is_mapped(address):
    """Return whether a block is mapped at this address. Other tests may have left blocks elsewhere."""
    lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:forebay" in line]
    spans = [[int(edge, 16) for edge in line.split()[0].split("-")] for line in lines]
    return any(start <= address < stop for start, stop in spans)


def test_an_attached_block_has_the_content_of_the_original(kind):
    with SharedBlock(NBYTES) as block, SharedBlock.attach(block.handle) as attached:
        array_over(block)[:] = np.arange(NBYTES) % 251
        np.testing.assert_array_equal(array_over(attached), np.arange(NBYTES) % 251)


def test_memory_starts_on_a_page_and_is_the_base_of_arrays(kind):
    with SharedBlock(NBYTES) as block:
        array = array_over(block)
        assert array.ctypes.data % 4096 == 0
        assert array.base is block.memory
        assert not isinstance(block.memory, np.ndarray)


def test_an_array_outlives_its_block(kind):
    block = SharedBlock(NBYTES)
    attached = SharedBlock.attach(block.handle)
    ours, theirs = array_over(block)[10:20], array_over(attached)[10:20]
    block.close()
    attached.close()
    del block, attached
    gc.collect()
    ours[:] = 42
    np.testing.assert_array_equal(theirs, np.full(10, 42))


def test_closing_twice_is_harmless_and_a_closed_block_has_no_memory(kind):
    block = SharedBlock(NBYTES)
    block.close()
    block.close()
    assert block.closed
    with pytest.raises(FeedClosedError, match=r"64\.0 KiB.* is closed"):
        _ = block.memory


def test_a_handle_is_a_small_pickle(kind):
    with SharedBlock(NBYTES) as block:
        sent = pickle.dumps(block.handle)
        assert pickle.loads(sent) == block.handle
        assert len(sent) < 200


def test_two_blocks_never_share_a_handle(kind):
    first = SharedBlock(NBYTES)
    handle = first.handle
    first.close()
    with SharedBlock(NBYTES) as second:  # reuses the descriptor number of the first
        assert second.handle != handle


def test_a_block_without_bytes_is_refused():
    with pytest.raises(SpecError, match="not 0"):
        SharedBlock(0)


@linux
def test_attaching_to_a_closed_block_raises():
    with pytest.raises(WorkerError, match=r"could not open shared memory of 64\.0 KiB"):
        SharedBlock.attach(BlockHandle("/proc/self/fd/9999", NBYTES, 0))


@linux
def test_a_kept_array_costs_no_descriptor():
    before = open_descriptors()
    kept = []
    for _ in range(50):
        with SharedBlock(NBYTES) as block, SharedBlock.attach(block.handle) as attached:
            kept += [array_over(block), array_over(attached)]
    assert open_descriptors() == before


@linux
def test_the_mapping_ends_with_the_last_array():
    block = SharedBlock(NBYTES)
    array = array_over(block)
    address = array.ctypes.data
    block.close()
    assert is_mapped(address)
    del array
    assert not is_mapped(address)


@linux
def test_an_unreferenced_block_releases_its_mapping_and_its_descriptor():
    before = open_descriptors()
    block = SharedBlock(NBYTES)
    address = array_over(block).ctypes.data
    assert open_descriptors() > before
    assert is_mapped(address)
    del block
    assert open_descriptors() == before
    assert not is_mapped(address)


EXITS_WITHOUT_CLOSING = """
import numpy as np
from forebay.core import shared_memory as shared
shared._create, shared._attach = shared._create_{kind}, shared._attach_{kind}
block = shared.SharedBlock(1 << 16)
attached = shared.SharedBlock.attach(block.handle)
array = np.ndarray((4,), "float32", buffer=block.memory)
other = np.ndarray((4,), "float32", buffer=attached.memory)
array[:] = 1
"""


def test_a_process_that_never_closes_exits_silently(kind):
    script = EXITS_WITHOUT_CLOSING.format(kind=kind)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

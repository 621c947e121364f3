"""The choice of a read strategy, and the reason that `explain()` shows."""

from pathlib import Path

import pytest

from forebay.core.source import FileExtent
from forebay.order.orders import BlockShuffled, Repeated, Sequential, Shuffled, Take
from forebay.sources.direct.address_space import AddressSpace
from forebay.sources.direct.strategy import FileFacts, ReadRequest, choose_strategy

GIB = 1 << 30
GROUP_ROWS = (4 << 20) // 4096  # a group of 4 MiB with rows of 4 KiB


def choose(order, *, row_nbytes=4096, host_nbytes=256 << 20, **facts):
    rows = 8 * GIB // row_nbytes
    space = AddressSpace([[FileExtent(0, rows, Path("rows.npy"), (1, 8 * GIB, 1), 128, row_nbytes)]], [row_nbytes])
    settings = {
        "uncached_nbytes": 8 * GIB,
        "available_nbytes": 2 * GIB,
        "alignment": 512,
        "why_no_io_uring": "",
    } | facts
    return choose_strategy(
        FileFacts(nbytes=8 * GIB, **settings), ReadRequest(order, rows, GROUP_ROWS, host_nbytes), space
    )


def shuffled_order(row_nbytes=4096):
    return Shuffled(Sequential(8 * GIB // row_nbytes), 0)


def block_order(block_rows=256, mix=16):
    return BlockShuffled(Sequential(8 * GIB // 4096), 0, block_rows, mix)


@pytest.mark.parametrize("order", [shuffled_order(), block_order(), Sequential(8 * GIB // 4096)])
def test_cached_files_are_gathered_from_the_page_cache(order):
    assert choose(order, uncached_nbytes=GIB // 10).strategy == "page cache"


def test_scattered_rows_are_read_with_direct_io():
    chosen = choose(shuffled_order())
    assert (chosen.strategy, chosen.alignment, chosen.use_io_uring) == ("rows", 512, True)
    assert (
        chosen.decision.why == "8.0 GiB of 8.0 GiB are not in memory: many rows are read at the same time, by io_uring"
    )


def test_files_of_short_rows_that_fit_into_memory_are_read_into_the_page_cache():
    assert choose(shuffled_order(64), row_nbytes=64, available_nbytes=20 * GIB).strategy == "warming"


def test_short_rows_that_do_not_fit_into_memory_are_read_row_by_row():
    assert choose(shuffled_order(64), row_nbytes=64).strategy == "rows"


@pytest.mark.parametrize("order", [block_order(), Take(block_order(), 1000), Repeated(block_order(), 3)])
def test_blocks_of_the_order_are_read_once(order):
    chosen = choose(order)
    assert (chosen.strategy, chosen.block_rows) == ("blocks", 256)
    assert chosen.decision.choice == "blocks, direct"


def test_a_reader_has_twice_the_block_buffers_that_a_group_can_need():
    assert choose(block_order()).block_buffers == 2 * block_order().blocks_within(GROUP_ROWS) == 48


def test_block_buffers_stay_within_the_host_budget():
    chosen = choose(block_order(), host_nbytes=64 << 20)
    assert 24 <= chosen.block_buffers < 48
    assert chosen.buffers_nbytes <= 64 << 20


def test_blocks_that_do_not_fit_into_the_budget_are_read_row_by_row():
    assert choose(block_order(block_rows=4096)).strategy == "rows"


def test_blocks_of_a_shuffled_order_are_read_row_by_row():
    assert choose(BlockShuffled(shuffled_order(), 0, 256, 16)).strategy == "rows"


def test_explain_names_a_file_system_that_refuses_direct_reads():
    chosen = choose(shuffled_order(), alignment=None)
    assert (chosen.alignment, chosen.decision.choice) == (1, "rows")
    assert chosen.decision.why.endswith("; through the page cache, because the file system refuses direct reads")


def test_explain_names_a_kernel_without_io_uring():
    chosen = choose(shuffled_order(), why_no_io_uring="Operation not permitted")
    assert not chosen.use_io_uring
    assert "by threads, because io_uring is not available (Operation not permitted)" in chosen.decision.why


@pytest.mark.parametrize(("row_nbytes", "buffers"), [(4096, 12), (20 << 20, 4), (200 << 20, 2)])
def test_large_rows_have_fewer_buffers(row_nbytes, buffers):
    chosen = choose(Sequential(8 * GIB // row_nbytes), row_nbytes=row_nbytes)
    assert (chosen.strategy, chosen.row_buffers) == ("rows", buffers)
    assert chosen.buffers_nbytes >= buffers * row_nbytes

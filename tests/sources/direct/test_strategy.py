"""Which way is chosen, and what is said of it."""

from pathlib import Path

import pytest

from forebay.core.source import Stored
from forebay.order.orders import BlockShuffled, First, Natural, Repeated, Shuffled
from forebay.sources.direct.address_space import Space
from forebay.sources.direct.strategy import Facts, Need, choose_reading

GIB = 1 << 30


def choice(order, *, row_nbytes=4096, host_nbytes=256 << 20, **facts):
    rows = 8 * GIB // row_nbytes
    space = Space([[Stored(0, rows, Path("rows.npy"), (1, 8 * GIB, 1), 128, row_nbytes)]], [row_nbytes])
    told = {"uncached_nbytes": 8 * GIB, "available_nbytes": 2 * GIB, "alignment": 512, "no_ring": ""} | facts
    return choose_reading(Facts(nbytes=8 * GIB, **told), Need(order, rows, 4 << 20 >> 12, host_nbytes), space)


def shuffled(row_nbytes=4096):
    return Shuffled(Natural(8 * GIB // row_nbytes), 0)


def by_blocks(block_rows=256, mix=16):
    return BlockShuffled(Natural(8 * GIB // 4096), 0, block_rows, mix)


@pytest.mark.parametrize("order", [shuffled(), by_blocks(), Natural(8 * GIB // 4096)])
def test_what_is_in_memory_is_gathered_from_there(order):
    assert choice(order, uncached_nbytes=GIB // 10).way == "page cache"


def test_scattered_rows_are_read_past_the_page_cache():
    chosen = choice(shuffled())
    assert (chosen.way, chosen.alignment, chosen.ring) == ("rows", 512, True)
    assert chosen.reason.why == "8.0 GiB of 8.0 GiB are not in memory: many at once, by io_uring"


def test_short_rows_that_fit_into_memory_are_left_to_the_page_cache():
    assert choice(shuffled(64), row_nbytes=64, available_nbytes=20 * GIB).way == "warming"


def test_short_rows_that_do_not_fit_are_read_one_by_one():
    assert choice(shuffled(64), row_nbytes=64).way == "rows"


@pytest.mark.parametrize("order", [by_blocks(), First(by_blocks(), 1000), Repeated(by_blocks(), 3)])
def test_blocks_of_the_order_are_read_once(order):
    chosen = choice(order)
    assert (chosen.way, chosen.block_rows) == ("blocks", 256)
    assert chosen.reason.choice == "blocks, direct"


def test_places_are_twice_what_a_group_can_need():
    assert choice(by_blocks()).places == 2 * by_blocks().blocks_within(4 << 20 >> 12) == 48


def test_blocks_keep_to_the_budget_of_the_host():
    chosen = choice(by_blocks(), host_nbytes=64 << 20)
    assert 24 <= chosen.places < 48
    assert chosen.held_nbytes <= 64 << 20


def test_blocks_that_do_not_fit_are_read_row_by_row():
    assert choice(by_blocks(block_rows=4096)).way == "rows"


def test_blocks_of_a_shuffled_order_are_no_stretches_of_a_file():
    assert choice(BlockShuffled(shuffled(), 0, 256, 16)).way == "rows"


def test_a_file_system_that_refuses_direct_reads_is_told_of():
    chosen = choice(shuffled(), alignment=None)
    assert (chosen.alignment, chosen.reason.choice) == (1, "rows")
    assert chosen.reason.why.endswith("; through the page cache, since the file system refuses direct reads")


def test_a_kernel_without_io_uring_is_told_of():
    chosen = choice(shuffled(), no_ring="Operation not permitted")
    assert not chosen.ring
    assert "by threads, since io_uring is not to be had (Operation not permitted)" in chosen.reason.why


@pytest.mark.parametrize(("row_nbytes", "trays"), [(4096, 12), (20 << 20, 4), (200 << 20, 2)])
def test_large_rows_have_fewer_trays(row_nbytes, trays):
    chosen = choice(Natural(8 * GIB // row_nbytes), row_nbytes=row_nbytes)
    assert (chosen.way, chosen.trays) == ("rows", trays)
    assert chosen.held_nbytes >= trays * row_nbytes

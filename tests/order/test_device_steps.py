"""The steps with which a device computes row numbers, run in plain Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.device_orders import ROWS, device_orders

from forebay.order.choices import Span
from forebay.order.combined import Concatenated, Interleaved, OrderPart
from forebay.order.device_steps import (
    MAX_DEVICE_PARTS,
    MAX_DEVICE_STEPS,
    Add,
    Branch,
    DrawAlias,
    Lookup,
    Mix,
    Permute,
    count_steps,
    step_tables,
)
from forebay.order.orders import BlockShuffled, Repeated, Sequential, Shuffled, Take
from forebay.order.sampling import Sampled

MASK = (1 << 64) - 1


def run_steps(steps, number):
    """Return the row number at a position, as a thread of a device computes it."""
    for step in steps:
        match step:
            case Add():
                number = (number + step.offset) & MASK
            case Permute():
                number = permute(step.params, number)
            case Lookup():
                number = int(step.table[number])
            case DrawAlias():
                number = draw(step, number)
            case Branch():
                part = next(part for part, stop in enumerate(step.stops) if number < stop)
                return run_steps(step.parts[part], (number - step.starts[part]) & MASK)
            case Mix():
                repetitions, place = divmod(number, len(step.slots))
                part, rank = divmod(int(step.slots[place]), 1 << 32)
                return run_steps(step.parts[part], repetitions * step.counts[part] + rank)
    return number


def permute(params, number):
    """Map a position with the rounds documented in `PermutationParams`."""
    while True:
        number += params.term
        for factor in params.factors:
            number = number * factor & params.mask
            number ^= number >> params.shift
        if number < params.length:
            return number


def draw(step, number):
    bits = (number * 0x9E3779B97F4A7C15 + step.key) & MASK
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & MASK
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & MASK
    bits ^= bits >> 31
    bucket, point = bits >> (64 - step.bucket_bits), bits >> (32 - step.bucket_bits) & 0xFFFFFFFF
    alias, threshold = divmod(int(step.entries[bucket]), 1 << 32)
    return bucket if point < threshold else alias


@given(order=device_orders, epoch=st.integers(0, 1000), data=st.data())
def test_the_steps_of_an_order_give_its_rows(order, epoch, data):
    steps = order.device_steps(epoch)
    last = order.length - 1
    drawn = data.draw(st.lists(st.integers(0, last), min_size=1, max_size=20))
    positions = np.array([0, last, *drawn])
    assert steps is not None
    assert [run_steps(steps, position) for position in positions.tolist()] == order.rows(epoch, positions).tolist()


@given(order=device_orders, epochs=st.lists(st.integers(0, 1000), min_size=2, max_size=2))
def test_the_tables_of_an_order_are_the_same_objects_in_every_epoch(order, epochs):
    first, second = ({id(table) for table in step_tables(order.device_steps(epoch))} for epoch in epochs)
    assert first == second


@given(order=device_orders)
def test_tables_have_the_integers_that_a_device_reads(order):
    for table in step_tables(order.device_steps(0)):
        assert table.dtype in (np.uint32, np.int64, np.uint64)


def test_an_order_without_shuffle_only_adds_an_offset():
    assert Sequential(ROWS).device_steps(0) == Take(Sequential(ROWS), 10).device_steps(0) == ()
    assert Span(Sequential(ROWS), 5).device_steps(0) == (Add(5),)


def test_epochs_of_a_shuffle_have_different_steps():
    order = Shuffled(Sequential(ROWS), 3)
    assert order.device_steps(4) == Shuffled(Sequential(ROWS), 3).device_steps(4) != order.device_steps(5)


@pytest.mark.parametrize(
    "order",
    [
        BlockShuffled(Sequential(ROWS), 3, 100, 8),
        Shuffled(BlockShuffled(Sequential(ROWS), 3, 100, 8), 1),
        Shuffled(Sequential(1000), 3),  # a table, which changes in every epoch
        Concatenated.of([OrderPart(Shuffled(Sequential(1000), 3), 0), OrderPart(Sequential(ROWS), 1000)]),
        Interleaved.of([OrderPart(Shuffled(Sequential(1000), 3), 0), OrderPart(Sequential(9), 1000)], (1, 1), "all", 1),
        Sampled.of(Sequential(5), np.ones(5), seed=0, count=5, replacement=False),
        Repeated(Shuffled(Sequential(ROWS), 3), None),
        Repeated(Shuffled(Sequential(ROWS), 3), MAX_DEVICE_PARTS + 1),
    ],
)
def test_the_host_computes_the_rows_of_other_orders(order):
    assert order.device_steps(4) is None


def test_the_host_computes_the_rows_if_there_are_too_many_steps():
    many = Repeated(Shuffled(Sequential(ROWS), 3), MAX_DEVICE_PARTS)
    assert count_steps(many.device_steps(0)) < MAX_DEVICE_STEPS
    assert Repeated(many, MAX_DEVICE_PARTS).device_steps(0) is None

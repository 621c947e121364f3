"""Strategies for orders whose row numbers a device can compute."""

import numpy as np
from hypothesis import strategies as st

from forebay.order.choices import Selected, Span, SplitPart
from forebay.order.combined import Concatenated, Interleaved, OrderPart
from forebay.order.orders import Repeated, Sequential, Shuffled, Take
from forebay.order.permutation import Permutation
from forebay.order.sampling import Sampled

ROWS = Permutation.TABLE_LENGTH + 1000  # long enough for permutations that are not tables


def sample_rows(inner, seed, count):
    weights = np.random.default_rng(seed).random(inner.length)
    return Sampled.of(inner, weights, seed=seed, count=count, replacement=True)


def select_rows(inner, seed, count):
    return Selected.of_positions(inner, np.random.default_rng(seed).integers(0, inner.length, count))


@st.composite
def wrapped_orders(draw, inner):
    """Wrap an order once."""
    seed, length = draw(st.integers(0, 5)), inner.length
    name = draw(st.sampled_from(["shuffle", "take", "span", "select", "split", "sample", "repeat"]))
    count = draw(st.integers(min(length, ROWS - 900), length))
    if name == "shuffle":
        return Shuffled(inner, seed)
    if name == "take":
        return Take(inner, count)
    if name == "span":
        return Span(inner, length - count)
    if name == "split":
        return SplitPart(inner, seed, length - count, count)
    if name == "repeat":
        return Repeated(inner, 2)
    return (select_rows if name == "select" else sample_rows)(inner, seed, count)


@st.composite
def orders(draw, depth=3):
    """Draw an order that a device can compute."""
    order = Sequential(ROWS)
    for _ in range(draw(st.integers(0, depth))):
        order = draw(wrapped_orders(order))
    return order


@st.composite
def combined_orders(draw):
    """Draw concatenated or interleaved orders, wrapped or not."""
    inner = draw(st.lists(orders(depth=1), min_size=1, max_size=3))
    parts = [OrderPart(order, number * ROWS) for number, order in enumerate(inner)]
    if draw(st.booleans()):
        order = Concatenated.of(parts)
    else:
        weights = tuple(draw(st.integers(1, 5)) for _ in parts)
        stop = draw(st.sampled_from(["first", "all", ROWS + 7]))
        order = Interleaved.of(parts, weights, stop, draw(st.none() | st.integers(0, 5)))
    return draw(wrapped_orders(order)) if draw(st.booleans()) else order


device_orders = orders() | combined_orders()

"""The laws of packing, for any lengths of texts."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.order.orders import Sequential
from forebay.order.packing import Packed, pack_texts
from forebay.testing.strategies import seeds

row_lengths = st.integers(1, 40)
text_lengths = st.lists(st.integers(0, 130), min_size=1, max_size=80).filter(any).map(np.array)


def pieces_of(table, row_length):
    """Return for each packed row a list of (text, first token, token after the last)."""
    starts = np.zeros(len(table.texts), int) if table.starts is None else table.starts.astype(int) * row_length
    pieces = list(zip(table.texts.tolist(), starts.tolist(), (starts + table.lengths).tolist(), strict=True))
    bounds = table.first_pieces.tolist()
    return [pieces[first:stop] for first, stop in pairwise(bounds)]


def tokens_of(rows):
    return sorted((text, token) for row in rows for text, first, stop in row for token in range(first, stop))


@given(lengths=text_lengths, row_length=row_lengths, seed=seeds)
def test_splitting_keeps_every_token_of_every_text_once(lengths, row_length, seed):
    rows = pieces_of(pack_texts(lengths, row_length, splits=True, seed=seed), row_length)
    assert tokens_of(rows) == [(text, token) for text, length in enumerate(lengths) for token in range(length)]


@given(lengths=text_lengths, row_length=row_lengths, seed=seeds)
def test_truncating_keeps_the_first_tokens_of_every_text_once(lengths, row_length, seed):
    rows = pieces_of(pack_texts(lengths, row_length, splits=False, seed=seed), row_length)
    kept = np.minimum(lengths, row_length)
    assert tokens_of(rows) == [(text, token) for text, length in enumerate(kept) for token in range(length)]


@given(lengths=text_lengths, row_length=row_lengths, splits=st.booleans(), seed=seeds)
def test_no_packed_row_is_empty_or_longer_than_its_length(lengths, row_length, splits, seed):
    rows = pieces_of(pack_texts(lengths, row_length, splits=splits, seed=seed), row_length)
    used = [sum(stop - first for _, first, stop in row) for row in rows]
    assert all(0 < tokens <= row_length for tokens in used)


@given(lengths=text_lengths, row_length=row_lengths, seed=seeds)
def test_at_most_one_packed_row_is_at_most_half_full(lengths, row_length, seed):
    rows = pieces_of(pack_texts(lengths, row_length, splits=True, seed=seed), row_length)
    used = [sum(stop - first for _, first, stop in row) for row in rows]
    assert sum(2 * tokens <= row_length for tokens in used) <= 1


def best_fit(lengths, row_length):
    """Return the number of rows of a plain best-fit packer. It packs the longest texts first."""
    spaces = []
    for length in sorted(lengths.tolist(), reverse=True):
        fitting = [space for space in spaces if space >= length]
        if fitting:
            spaces[spaces.index(min(fitting))] -= length
        elif length:
            spaces.append(row_length - length)
    return len(spaces)


@given(lengths=text_lengths, row_length=row_lengths)
def test_packing_needs_as_many_rows_as_a_plain_best_fit_packer(lengths, row_length):
    lengths = np.minimum(lengths, row_length)
    assert len(pack_texts(lengths, row_length, splits=False, seed=0)) == best_fit(lengths, row_length)


@given(lengths=text_lengths, row_length=row_lengths, seed=seeds)
def test_texts_of_one_length_keep_the_order_of_the_source(lengths, row_length, seed):
    table = pack_texts(lengths, row_length, splits=False, seed=seed)
    for length in np.unique(table.lengths):
        assert (np.diff(table.texts[table.lengths == length].astype(int)) > 0).all()


@pytest.mark.parametrize("lengths", ["lognormal", "uniform", "mixture"])
def test_rows_are_at_least_98_percent_full_for_usual_lengths(lengths):
    generator = np.random.default_rng(0)
    texts = {
        "lognormal": np.exp(generator.normal(np.log(300), 1, 20_000)),
        "uniform": generator.integers(1, 2049, 20_000),
        "mixture": np.exp(generator.normal(np.log([60] * 10_000 + [1500] * 10_000), 0.5)),
    }[lengths].astype(int)
    packed = Packed.of(Sequential(len(texts)), np.maximum(1, texts), 2048, long="split", seed=0)
    assert packed.fill >= 0.98


def test_texts_above_half_a_row_have_rows_of_their_own():
    packed = Packed.of(Sequential(9), np.full(9, 1100), 2048, long="split", seed=0)
    assert packed.length == 9


def test_the_texts_of_a_row_are_from_about_the_same_part_of_the_source():
    lengths = np.maximum(1, np.exp(np.random.default_rng(0).normal(np.log(300), 1, 100_000))).astype(int)
    rows = pieces_of(pack_texts(lengths, 2048, splits=True, seed=0), 2048)
    spreads = [max(row)[0] - min(row)[0] for row in rows]
    assert np.mean(spreads) < 0.2 * len(lengths)
    firsts = [row[0][0] for row in rows]
    assert np.corrcoef(firsts, np.arange(len(rows)))[0, 1] > 0.9


@pytest.mark.parametrize("longest", [70_000, 200_000])
def test_rows_with_more_than_65536_tokens_are_packed(longest):
    lengths = np.arange(1, 200) * longest // 200
    rows = pieces_of(pack_texts(lengths, 2**17, splits=True, seed=0), 2**17)
    assert sorted(stop - first for row in rows for _, first, stop in row if first == 0) == sorted(
        np.minimum(lengths, 2**17).tolist()
    )


def test_the_memory_does_not_depend_on_the_length_of_a_row():
    (row,) = pieces_of(pack_texts(np.array([3, 2]), 2**31 - 1, splits=True, seed=0), 2**31 - 1)
    assert sorted(row) == [(0, 0, 3), (1, 0, 2)]


@given(lengths=text_lengths, row_length=row_lengths, seed=seeds, other=seeds)
def test_another_seed_makes_another_description(lengths, row_length, seed, other):
    orders = [
        Packed.of(Sequential(len(lengths)), lengths, row_length, long="split", seed=number) for number in (seed, other)
    ]
    assert (orders[0].describe() == orders[1].describe()) == (seed == other)


@pytest.mark.parametrize("dtype", ["int32", "uint16", "int64"])
def test_the_dtype_of_the_lengths_does_not_change_the_description(dtype):
    lengths = np.array([3, 9, 4])
    orders = [
        Packed.of(Sequential(3), array, 5, long="split", seed=0).describe()
        for array in (lengths, lengths.astype(dtype))
    ]
    assert orders[0] == orders[1]

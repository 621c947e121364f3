"""Alias tables have the rounded weights, and do not depend on the window length."""

import hashlib
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.order import alias_entries as module
from forebay.order.alias_entries import _BUCKET, _CHUNK, _round_weights, alias_entries

weights = st.lists(st.just(0.0) | st.floats(0, 1e308), min_size=1, max_size=60).filter(any)


def bits_for(weights):
    return max(1, (len(weights) - 1).bit_length())


def shares(entries):
    """Return for each index the total size of the parts of buckets from which a draw returns this index."""
    thresholds = entries & np.uint64(_BUCKET - 1)
    aliases = (entries >> np.uint64(32)).astype(np.int64)
    found = thresholds.astype(object)
    np.add.at(found, aliases, _BUCKET - thresholds.astype(object))
    return found.tolist()


@given(weights=weights)
def test_an_alias_table_gives_each_weight_exactly_its_rounded_share(weights):
    rounded = _round_weights(np.array(weights), 1 << bits_for(weights))
    assert rounded.sum() == len(rounded) * _BUCKET
    assert shares(alias_entries(np.array(weights), bits_for(weights))) == rounded.tolist()
    assert all(share == 0 for share, weight in zip(rounded, weights, strict=False) if weight == 0)


@given(weights=weights | st.lists(st.integers(0, 3), min_size=1, max_size=60).filter(any), chunk=st.integers(1, 9))
def test_short_windows_build_the_same_table(weights, chunk):
    array = np.array(weights, np.float64)
    expected = alias_entries(array, bits_for(weights))
    with patch.object(module, "_CHUNK", chunk):
        assert alias_entries(array, bits_for(weights)).tolist() == expected.tolist()


SHAPES = {
    "equal": np.ones_like,
    "random": lambda values: values,
    "ascending": np.sort,
    "descending": lambda values: np.sort(values)[::-1],
    "few large weights": lambda values: values**40,
    "few small weights": lambda values: np.minimum(values, 0.01),
    "one small weight": lambda values: np.where(np.arange(len(values)) == 777, 1e-9, 1.0),
}


@pytest.mark.parametrize("length", [_CHUNK - 1, _CHUNK, 3 * _CHUNK + 7, 4 * _CHUNK])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_table_that_is_built_in_windows_is_exact_too(length, shape):
    weights = SHAPES[shape](np.random.default_rng(0).random(length))
    rounded = _round_weights(weights, 1 << bits_for(weights))
    assert shares(alias_entries(weights, bits_for(weights))) == rounded.tolist()


def test_tables_never_change_between_versions():
    entries = alias_entries(np.arange(100_000) % 1009 + 0.5, 17)
    digest = hashlib.sha256(entries.astype("<u8").tobytes()).hexdigest()
    assert digest.startswith("6c3303e15277d7e2")


def test_weights_are_rounded_by_less_than_a_billionth():
    weights = np.random.default_rng(0).random(1000)
    rounded = _round_weights(weights, 1024)
    assert np.abs(rounded[:1000] / rounded.sum() - weights / weights.sum()).max() < 1e-9

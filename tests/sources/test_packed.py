"""`PackedSource` follows the rules of every source, and validates the texts that it reads."""

from itertools import pairwise

import numpy as np
import pytest

import forebay as fb
from forebay.errors import SourceError
from forebay.testing import SourceTests

LENGTHS = [3, 9, 0, 5, 5, 1, 14, 2, 7, 4, 4, 1, 1, 6]
OFFSETS = np.cumsum([0, *LENGTHS])
TEXTS = [np.arange(start, stop) for start, stop in pairwise(OFFSETS)]


def rows_of(source):
    """Return the packed rows by a plain loop over the table, as a reference."""
    length = source.specs[0].shape[0]
    fields = zip(source.structure.keys, source.specs, strict=True)
    rows = {name: np.zeros((len(source), length), spec.dtype) for name, spec in fields}
    table = source._table
    for row in range(len(source)):
        numbers = range(table.first_pieces[row], table.first_pieces[row + 1])
        place = 0
        for number, piece in enumerate(sorted(numbers, key=lambda piece: table.texts[piece]), 1):
            first = 0 if table.starts is None else int(table.starts[piece]) * length
            count = int(table.lengths[piece])
            rows["tokens"][row, place : place + count] = TEXTS[table.texts[piece]][first : first + count]
            rows["segment_ids"][row, place : place + count] = number
            rows["positions"][row, place : place + count] = np.arange(count)
            place += count
    return rows


class TestPackedValues(SourceTests):
    def make_source(self, tmp_path):
        source = fb.from_ragged(np.arange(OFFSETS[-1]), OFFSETS).pack(7).source
        return source, rows_of(source)


class TestPackedItems(SourceTests):
    def make_source(self, tmp_path):
        source = fb.from_source(TEXTS).pack(10, long="truncate").source
        return source, rows_of(source)


def test_a_gather_of_many_rows_equals_gathers_of_single_rows(monkeypatch):
    source = fb.from_ragged(np.arange(OFFSETS[-1]), OFFSETS).pack(7).source
    whole, rows = [[spec.empty(len(source)) for spec in source.specs] for _ in range(2)]
    source.gather(slice(0, len(source)), whole)
    source._chunk_rows = 2
    source.gather(slice(0, len(source)), rows)
    assert all((a == b).all() for a, b in zip(whole, rows, strict=True))


def test_targets_that_are_not_contiguous_are_filled():
    source = fb.from_source(TEXTS).pack(7).source
    targets = [np.zeros((len(source), 14), spec.dtype)[:, ::2] for spec in source.specs]
    source.gather(slice(0, len(source)), targets)
    for target, expected in zip(targets, rows_of(source).values(), strict=True):
        assert target.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([np.arange(3), np.arange(2)], {"lengths": [3, 1]}, "row 1 has 2 values in 'array', but pack\\(\\) counted 1"),
        ([np.arange(3), np.arange(2)], {"lengths": [3, 4]}, "counted 4"),
        ([np.arange(3), np.arange(9)], {"lengths": [3, 5], "long": "error"}, "counted 5"),
        ([np.arange(3), np.arange(2.0)], {}, "row 1 has float64"),
        ([np.arange(3), np.zeros((2, 2), int)], {}, "one dimension"),
        ([{"x": np.arange(3), "y": np.arange(3)}, {"x": np.arange(2), "y": np.arange(3)}], {}, "in 'y'"),
    ],
)
def test_texts_that_differ_from_the_counted_lengths_or_the_specs_are_refused(texts, options, message):
    with pytest.raises(SourceError, match=message):
        list(fb.from_source(texts).pack(5, **options).batch(4).feed("numpy"))


def test_values_in_another_byte_order_are_converted():
    values = np.arange(12, dtype=">i4")
    (batch,) = fb.from_ragged(values, [0, 5, 12]).pack(12).batch(1).feed("numpy")
    assert batch["tokens"].tolist() == [list(range(12))]
    assert batch["tokens"].dtype == np.dtype("int32")

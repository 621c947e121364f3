"""`batch(pad=...)`: maps on rows receive rows without padding, whatever batch they are in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.testing import SimulatedEngine

TEXTS = [np.array([1, 2, 3]), np.array([4]), np.arange(5, 11)]
LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=20)


def double(text):
    return np.concatenate([text, text])


def reverse_row(text):
    text[:] = text[::-1].copy()  # the map may change its row
    return {"text": text[:4], "length": len(text)}


def sources(texts):
    offsets = np.cumsum([0, *map(len, texts)])
    return {
        "arrays": fb.from_ragged(np.concatenate(texts), offsets),
        "list": fb.from_source(texts),
        "generator": fb.from_generator(lambda: iter(texts)),
    }


def pad_rows(rows, value):
    longest = max(map(len, rows))
    return [[*row, *[value] * (longest - len(row))] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["arrays", "list", "generator"])
@pytest.mark.parametrize("where", ["thread", "process"])
def test_a_map_on_rows_receives_rows_without_padding(kind, where):
    with sources(TEXTS)[kind].map(double, where=where).batch(3, pad=-1).feed("numpy") as feed:
        found = next(feed).tolist()
    assert found == pad_rows([double(text).tolist() for text in TEXTS], -1)


@given(lengths=LENGTHS, batch_rows=st.integers(1, 7), kind=st.sampled_from(["arrays", "list", "generator"]))
def test_rows_of_maps_do_not_depend_on_the_other_rows_of_their_batch(lengths, batch_rows, kind):
    texts = [np.arange(length) + 100 * row for row, length in enumerate(lengths)]
    pipeline = sources(texts)[kind].map(double).map(fb.scale(0.5)).map(reverse_row).batch(batch_rows, pad={"text": -1})
    expected = [(text[::-1] / 2)[:4].tolist() for text in map(double, texts)]
    for device in ("cpu", SimulatedEngine()):
        with pipeline.feed("numpy", device=device) as feed:
            batches = [(batch["text"].tolist(), batch["length"].tolist()) for batch in feed]
        assert [length for _, found in batches for length in found] == [2 * length for length in lengths]
        starts = range(0, len(texts), batch_rows)
        assert [text for text, _ in batches] == [pad_rows(expected[start : start + batch_rows], -1) for start in starts]
    assert [text.tolist() for text in texts] == [list(range(100 * row, 100 * row + n)) for row, n in enumerate(lengths)]


def test_single_values_of_unpadded_rows_are_numpy_scalars():
    seen = []

    def keep(row):
        seen.append(type(row["label"]))
        return row

    rows = [{"text": text, "label": len(text)} for text in TEXTS]
    with fb.from_source(rows).map(keep).batch(3, pad=0).feed("numpy") as feed:
        assert next(feed)["label"].tolist() == [3, 1, 6]
    assert set(seen) == {np.int64}


def test_a_field_that_a_map_drops_needs_no_padding():
    rows = [{"text": text, "word": np.arange(len(text) + 1)} for text in TEXTS]
    pipeline = fb.from_source(rows).map(lambda row: {"text": row["text"]}).batch(3, pad={"text": 0})
    with pipeline.feed("numpy") as feed:
        assert next(feed)["text"].shape == (3, 6)


def test_batches_of_similar_length_use_the_lengths_after_the_map():
    lengths = [2 * len(text) for text in TEXTS]
    pipeline = sources(TEXTS)["arrays"].map(double).batch(tokens=12, pad=0, lengths=lengths, buckets=[6, 12])
    with pipeline.feed("numpy") as feed:
        assert [batch.tolist() for batch in feed] == [
            [[1, 2, 3, 1, 2, 3], [4, 4, 0, 0, 0, 0]],
            [[*range(5, 11), *range(5, 11)]],
        ]

"""Random chains of the pipeline methods that choose rows, beside a plain NumPy model of their rows."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from hypothesis import assume
from hypothesis import strategies as st

import forebay as fb
from forebay.testing.strategies import seeds

__all__ = ["Chain", "chains"]


@dataclass(frozen=True)
class Chain:
    """A pipeline, and what is known about its rows in every epoch."""

    pipeline: Any
    rows: Any  # the rows: exactly if `is_exact`, in any order if `is_complete`, else rows that may come
    length: int
    is_exact: bool = True
    is_complete: bool = True

    def assert_rows(self, found):
        """Compare the rows of an epoch with the model."""
        assert len(found) == self.length
        assert set(found) <= set(self.rows.tolist())
        if self.is_exact:
            assert found == self.rows.tolist()
        elif self.is_complete:
            assert sorted(found) == sorted(self.rows.tolist())


def select(draw, chain):
    if draw(st.booleans()):
        numbers = draw(st.lists(st.integers(0, chain.length - 1), min_size=1, max_size=60))
        assume(chain.length <= 2 or len(numbers) != chain.length or max(numbers) > 1)  # else they look like a mask
    else:
        mask = draw(st.lists(st.booleans(), min_size=chain.length, max_size=chain.length).filter(any))
        return _exact(chain, chain.pipeline.select(np.array(mask)), chain.rows[np.array(mask)])
    return _exact(chain, chain.pipeline.select(numbers), chain.rows[numbers])


def skip(draw, chain):
    count = draw(st.integers(0, chain.length - 1))
    pipeline, length = chain.pipeline.skip(count), chain.length - count
    if chain.is_exact:
        return _exact(chain, pipeline, chain.rows[count:])
    return replace(chain, pipeline=pipeline, length=length, is_complete=chain.is_complete and count == 0)


def take(draw, chain):
    count = draw(st.integers(1, chain.length))
    pipeline = chain.pipeline.take(count)
    if chain.is_exact:
        return _exact(chain, pipeline, chain.rows[:count])
    return replace(chain, pipeline=pipeline, length=count, is_complete=chain.is_complete and count == chain.length)


def split(draw, chain):
    if chain.length < 2:
        return chain
    seed, number = draw(st.none() | seeds), draw(st.integers(0, 1))
    parts, half = chain.pipeline.split(0.5, 0.5, seed=seed), -(-chain.length // 2)
    if seed is not None:
        length = chain.length - half if number else half
        return Chain(parts[number], chain.rows, length, is_exact=False, is_complete=False)
    return _exact(chain, parts[number], chain.rows[half:] if number else chain.rows[:half])


def filter_rows(draw, chain):
    divisor = draw(st.integers(1, 4))
    kept = chain.rows[chain.rows % divisor == 0]
    if not len(kept):
        return chain
    return _exact(chain, chain.pipeline.filter(lambda rows: rows % divisor == 0), kept)


def repeat(draw, chain):
    count = draw(st.integers(1, 3))
    rows = np.tile(chain.rows, count)
    return replace(chain, pipeline=chain.pipeline.repeat(count), rows=rows, length=chain.length * count)


def shuffle(draw, chain):
    block = draw(st.none() | st.integers(1, 20))
    mix = None if block is None else draw(st.integers(1, 4))
    return replace(chain, pipeline=chain.pipeline.shuffle(seed=draw(seeds), block=block, mix=mix), is_exact=False)


def sample(draw, chain):
    weights = np.array(draw(st.lists(st.integers(0, 3), min_size=chain.length, max_size=chain.length).filter(any)))
    replacement = draw(st.booleans())
    count = draw(st.integers(1, 2 * chain.length if replacement else np.count_nonzero(weights)))
    options = {"weights": weights, "rows": count, "replacement": replacement, "seed": draw(seeds)}
    pipeline, possible = chain.pipeline.sample(**options), chain.rows[weights > 0]
    is_complete = not replacement and count == len(possible)
    return Chain(pipeline, possible, count, is_exact=False, is_complete=is_complete)


def packed_texts(draw):
    """Draw packed rows. The first token identifies a row, because no two tokens of all texts are equal."""
    lengths = draw(st.lists(st.integers(0, 12), min_size=1, max_size=40).filter(any))
    offsets = np.cumsum([0, *lengths])
    pipeline = fb.from_ragged(np.arange(offsets[-1]), offsets).pack(draw(st.integers(1, 16)), seed=draw(seeds))
    (tokens,) = pipeline.source.gather_leaves([0], slice(0, len(pipeline.source)))
    return Chain(pipeline, tokens[:, 0], len(tokens))


def cache(draw, chain):
    row_nbytes = sum(spec.nbytes for spec in chain.pipeline.specs)
    return replace(chain, pipeline=chain.pipeline.cache(draw(st.integers(row_nbytes, 50 * row_nbytes))))


NEED_FIXED_ROWS = (select, split, filter_rows, sample)
WORDS = (*NEED_FIXED_ROWS, skip, take, repeat, shuffle, cache)


@st.composite
def chains(draw):
    """Draw a chain of up to four words over up to 40 rows. A word that needs fixed rows comes before a shuffle.

    The rows are numbers or packed texts. The function of a filter cannot read packed texts as numbers.
    """
    is_packed = draw(st.booleans())
    length = draw(st.integers(1, 40))
    rows = draw(st.sampled_from([np.arange(length), pd.Series(np.arange(length)), pl.Series(np.arange(length))]))
    chain = packed_texts(draw) if is_packed else Chain(fb.from_arrays(rows), np.arange(length), length)
    words = [word for word in WORDS if not (is_packed and word is filter_rows)]
    for word in draw(st.lists(st.sampled_from(words), min_size=1, max_size=4)):
        if chain.is_exact or word not in NEED_FIXED_ROWS:
            chain = word(draw, chain)
    return replace(chain, pipeline=chain.pipeline.map(_first_token)) if is_packed else chain


def _first_token(row):
    return row["tokens"][0]


def _exact(chain, pipeline, rows):
    return Chain(pipeline, rows, len(rows))

"""Random chains of methods that choose rows, with a NumPy model of the rows."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from tests.pipeline.chain_bases import (
    BASES,
    FIELD,
    bases,
    first_values,
    last_number,
    number_of,
    read_numbers,
    scratch_folder,
)

import forebay as fb
from forebay.errors import PipelineError
from forebay.testing.strategies import seeds

__all__ = ["REFUSALS", "WORDS", "Chain", "chains"]

# A chain begins with a base: a source with numbered rows. A combined chain has several.
NEXT_BASE = 60  # distance between the first row numbers of two bases: no row number occurs in both
LAST_BASE = 180  # largest first row number of a base: a pixel of an image contains it, and holds at most 255
MAX_LENGTH = 300  # rows; a longer chain gets no further call that repeats or adds rows

# A word is the name of a call or of a base. A combined chain has the words of all its parts. REFUSALS: call -> pairs of
# words and a part of an error message. The call may be refused with this message if the chain has one of the words.
_DRAWS = {"shuffle", "sample", "sample_balance", "interleave"}
_DRAWN = (_DRAWS, "would choose different rows in each epoch")
_CHOICES = {"select", "filter_rows", "split", "split_by", "repeat", "concat", "interleave", "zip_rows", "window"}
_MAPS = {"map_rows", "map_skip"}
_MAPPED = (_MAPS, "reads the stored rows, but map")
_MAPPED_BEFORE = (_MAPS, r"has map\(.*Call map\(\) after")
_SKIPPED = ({"map_skip"}, "has on_error='skip', which replaces a row by another row of its batch")
REFUSALS: dict[str, tuple[tuple[set[str], str], ...]] = {
    "select": (_DRAWN,),
    "split": (_DRAWN,),
    "split_by": (_DRAWN, _MAPPED),
    "filter_rows": (_DRAWN, _MAPPED),
    "sample": (_DRAWN,),
    "sample_balance": (_DRAWN, _MAPPED),
    "window": (({"packed"} | _DRAWS | _CHOICES | _MAPS, "needs consecutive rows of the source"),),
    "concat": (_MAPPED_BEFORE,),
    "interleave": (_MAPPED_BEFORE,),
    "zip_rows": (_MAPPED_BEFORE, ({"fields", "frame", "images", "packed"}, "two fields that are both named")),
    "cache": (_SKIPPED,),
    "disk_cache": (_SKIPPED,),
}


@dataclass(frozen=True)
class Chain:
    """A pipeline, and what is known about its rows in every epoch."""

    rows_pipeline: Any  # its rows contain their numbers
    rows: Any  # their numbers: in order if `is_exact`, in any order if `is_complete`, else the possible numbers
    length: int
    base: Any  # the row numbers of the base; None for packed rows, whose order no array has
    words: frozenset[str]  # the name of the base, and the calls
    is_exact: bool = True
    is_complete: bool = True
    steps: tuple[Callable[[Any], Any], ...] | None = ()  # the calls, if they apply to any array, else None
    row_steps: tuple[Callable[[Any], Any], ...] | None = ()  # the calls that change a row's shape; None: unknown
    last_base: int = 0  # the first row number of the base that was added last

    @property
    def pipeline(self):
        """The pipeline whose rows are their numbers."""
        return self.rows_pipeline.map(number_of)

    def assert_rows(self, found):
        """Compare the rows of an epoch with the model."""
        assert len(found) == self.length
        assert set(found) <= set(self.rows.tolist())
        if self.is_exact:
            assert found == self.rows.tolist()
        elif self.is_complete:
            assert sorted(found) == sorted(self.rows.tolist())

    def then(self, step, rows=None, **changes):
        """Return the chain after another call. `rows` are its rows, if they are known exactly."""
        if rows is not None:
            changes |= {"rows": rows, "length": len(rows), "is_complete": True}
        steps = None if self.steps is None else (*self.steps, step)
        return replace(self, rows_pipeline=step(self.rows_pipeline), **{"steps": steps, **changes})


def select(draw, chain):
    if draw(st.booleans()):
        choice = draw(st.lists(st.integers(0, chain.length - 1), min_size=1, max_size=60))
        assume(chain.length <= 2 or len(choice) != chain.length or max(choice) > 1)  # else `choice` looks like a mask
    else:
        choice = np.array(draw(st.lists(st.booleans(), min_size=chain.length, max_size=chain.length).filter(any)))
    return chain.then(lambda rows: rows.select(choice), _exact_rows(chain, choice))


def skip(draw, chain):
    count = draw(st.integers(0, chain.length - 1))
    known = {"length": chain.length - count, "is_complete": chain.is_complete and count == 0}
    return chain.then(lambda rows: rows.skip(count), _exact_rows(chain, slice(count, None)), **known)


def take(draw, chain):
    count = draw(st.integers(1, chain.length))
    known = {"length": count, "is_complete": chain.is_complete and count == chain.length}
    return chain.then(lambda rows: rows.take(count), _exact_rows(chain, slice(count)), **known)


def split(draw, chain):
    """Split, and check that the two parts have all rows."""
    seed, number, half = draw(st.none() | seeds), draw(st.integers(0, 1)), -(-chain.length // 2)
    if chain.length < 2:
        return chain
    parts = [read_numbers(part) for part in chain.rows_pipeline.split(0.5, 0.5, seed=seed)]
    assert [len(part) for part in parts] == [half, chain.length - half]
    assert sorted(parts[0] + parts[1]) == sorted(chain.rows.tolist())
    assert seed is not None or parts[0] + parts[1] == chain.rows.tolist()
    return chain.then(lambda rows: rows.split(0.5, 0.5, seed=seed)[number], np.array(parts[number]))


def split_by(draw, chain):
    """Split by labels or a field, and check that no group is in two parts."""
    (by, groups), seed, number = _labels(draw, chain), draw(st.none() | seeds), draw(st.integers(0, 1))
    if chain.length < 2:
        return chain
    try:
        parts = [read_numbers(part) for part in chain.rows_pipeline.split(0.5, 0.5, seed=seed, by=by)]
    except PipelineError as error:
        if "got none of them" in str(error):  # there are too few groups
            return chain
        raise
    group_of = dict(zip(chain.rows.tolist(), groups.tolist(), strict=True))
    groups_of_parts = [{group_of[row] for row in part} for part in parts]
    assert not groups_of_parts[0] & groups_of_parts[1]
    assert parts == [chain.rows[np.isin(groups, list(kept))].tolist() for kept in groups_of_parts]
    made = chain.then(lambda rows: rows.split(0.5, 0.5, seed=seed, by=by)[number], np.array(parts[number]))
    return _require_field(made, by)


def filter_rows(draw, chain):
    divisor = draw(st.integers(1, 4))
    kept = chain.rows[chain.rows % divisor == 0]
    if not len(kept):
        return chain
    return chain.then(lambda rows: rows.filter(lambda batch: first_values(batch) % divisor == 0), kept)


def repeat(draw, chain):
    count = draw(st.integers(1, 3))
    if chain.length > MAX_LENGTH:
        return chain
    repeated = chain.then(lambda rows: rows.repeat(count))
    return replace(repeated, rows=np.tile(chain.rows, count), length=chain.length * count)


def shuffle(draw, chain):
    seed, block = draw(seeds), draw(st.none() | st.integers(1, 20))
    mix = None if block is None else draw(st.integers(1, 4))
    return chain.then(lambda rows: rows.shuffle(seed=seed, block=block, mix=mix), is_exact=False)


def sample(draw, chain):
    weights = np.array(draw(st.lists(st.integers(0, 3), min_size=chain.length, max_size=chain.length).filter(any)))
    return _draw_sample(draw, chain, weights > 0, weights=weights)


def sample_balance(draw, chain):
    by, _ = _labels(draw, chain)
    return _require_field(_draw_sample(draw, chain, np.ones(chain.length, bool), balance=by), by)


def window(draw, chain):
    """Make windows, and compare their last rows with the rows of the chain."""
    length = draw(st.integers(1, min(4, chain.length)))
    horizon, stride = draw(st.integers(0, min(2, chain.length - length))), draw(st.integers(1, 3))
    by, groups = _labels(draw, chain) if draw(st.booleans()) else (None, np.zeros(chain.length))
    bounds = [*np.flatnonzero(np.diff(groups, prepend=np.nan)).tolist(), chain.length]
    last = length + horizon - 1
    starts = [start for first, stop in pairwise(bounds) for start in range(first, stop - last, stride)]
    if not starts:
        return chain

    def step(rows):
        return rows.window(length, stride=stride, horizon=horizon, within=by)

    made = chain.then(step, _exact_rows(chain, starts))
    assert read_numbers(made.rows_pipeline, last_number) == chain.rows[np.add(starts, last)].tolist()
    if made.row_steps is not None:
        made = replace(
            made, row_steps=(*made.row_steps, lambda rows: rows.window(length, stride=stride, horizon=horizon))
        )
    return _require_field(made, by)


def concat(draw, chain):
    if chain.length > MAX_LENGTH:
        return chain
    other = draw(_others(chain))
    both = {"rows": np.concatenate([chain.rows, other.rows]), "length": chain.length + other.length}
    made = _combine(chain, other, fb.concat(chain.rows_pipeline, other.rows_pipeline))
    return replace(made, **both, is_complete=chain.is_complete and other.is_complete)


def interleave(draw, chain):
    """Mix two pipelines. Other tests check the order of the mix, so the model reads the order from the pipeline."""
    if chain.length > MAX_LENGTH:
        return chain
    other, seed = draw(_others(chain)), draw(st.none() | seeds)
    weights, stop = draw(st.tuples(st.integers(1, 4), st.integers(1, 4))), draw(st.sampled_from(["first", "all", 30]))
    mixed = fb.interleave(chain.rows_pipeline, other.rows_pipeline, weights=weights, stop=stop, seed=seed)
    rows = np.array(read_numbers(mixed))
    possible = np.concatenate([chain.rows, other.rows])
    assert set(rows.tolist()) <= set(possible.tolist())
    assert stop != "all" or not (chain.is_complete and other.is_complete) or set(rows) == set(possible)
    assert stop != 30 or len(rows) == 30
    made = replace(_combine(chain, other, mixed), length=len(rows))
    is_exact = made.is_exact and seed is None
    return replace(made, rows=rows if is_exact else possible, is_exact=is_exact, is_complete=is_exact)


def zip_rows(draw, chain):
    """Zip the rows with an array of the same row numbers, or with themselves. `number_of` compares the numbers."""
    other = chain.rows_pipeline
    if chain.steps is not None and chain.base is not None:
        other = reduce(lambda rows, step: step(rows), chain.steps, fb.from_arrays((chain.base,)))
    return chain.then(lambda rows: fb.zip_rows(rows, other), steps=None, row_steps=None)


def map_rows(draw, chain):
    return chain.then(lambda rows: rows.map(_same))


def map_skip(draw, chain):
    """Map with a function that never fails. The result of a failure would depend on the batch."""
    return chain.then(lambda rows: rows.map(_same, on_error="skip"))


def cache(draw, chain):
    budget = draw(st.integers(1, 50))
    return chain.then(lambda rows: rows.cache(budget * _row_nbytes(rows)))


def disk_cache(draw, chain):
    """Cache in a folder that all chains share. Only the keys keep the rows of chains apart."""
    budget, folder = draw(st.none() | st.integers(1, 50)), scratch_folder() / "rows"
    if budget is None:
        return chain.then(lambda rows: rows.cache(folder))
    return chain.then(lambda rows: rows.cache(budget * _row_nbytes(rows), path=folder))


NEED_FIXED_ROWS = (select, split, split_by, filter_rows, sample, sample_balance)
_WORDS = (*NEED_FIXED_ROWS, skip, take, repeat, shuffle, window, concat, interleave, zip_rows)
_WORDS += (map_rows, map_skip, cache, disk_cache)
WORDS = {word.__name__: word for word in _WORDS}


@st.composite
def chains(draw, word=None):
    """Draw a chain of up to four words, or a chain of one given word.

    If a call is refused for a reason in `REFUSALS`, the chain leaves the call out.
    """
    base = draw(bases(draw(st.sampled_from(list(BASES)))))
    rows = None if base.name == "packed" else base.rows
    chain = Chain(base.pipeline, base.rows, len(base.rows), rows, frozenset([base.name]))
    for name in [word] if word else draw(st.lists(st.sampled_from(list(WORDS)), min_size=1, max_size=4)):
        chain = _apply(draw, chain, name)
    return chain


def _apply(draw, chain, name):
    try:
        made = WORDS[name](draw, chain)
    except PipelineError as error:
        if not _is_documented(name, chain, error):
            raise
        return chain
    assert made is chain or chain.is_exact or WORDS[name] not in NEED_FIXED_ROWS, f"{name} after {chain.words}"
    return replace(made, words=made.words | {name})


def _is_documented(name, chain, error):
    reasons = [message for earlier, message in REFUSALS.get(name, ()) if earlier & chain.words]
    return any(re.search(message, str(error)) for message in reasons)


@st.composite
def _others(draw, chain):
    """Draw a pipeline to combine with a chain: a new base, or the chain itself."""
    (name,) = chain.words & set(BASES)
    first = chain.last_base + NEXT_BASE
    if chain.row_steps is None or name == "packed" or first > LAST_BASE:
        return chain
    base = draw(bases(name, first))
    try:
        rows_pipeline = reduce(lambda rows, step: step(rows), chain.row_steps, base.pipeline)
    except PipelineError:  # the base has fewer rows than a window
        return chain
    rows = np.array(read_numbers(rows_pipeline))
    other = Chain(rows_pipeline, rows, len(rows), base.rows, frozenset([name]))
    word = draw(st.sampled_from([None, "skip", "take", "repeat", "shuffle"]))
    return _apply(draw, other, word) if word else other


def _combine(chain, other, pipeline):
    known = {"is_exact": chain.is_exact and other.is_exact, "last_base": chain.last_base + NEXT_BASE}
    return replace(chain, rows_pipeline=pipeline, words=chain.words | other.words, steps=None, **known)


def _draw_sample(draw, chain, is_possible, **options):
    replacement, seed = draw(st.booleans()), draw(seeds)
    count = draw(st.integers(1, 2 * chain.length if replacement else np.count_nonzero(is_possible)))
    options |= {"rows": count, "replacement": replacement, "seed": seed}
    sampled = chain.then(lambda rows: rows.sample(**options), length=count, is_exact=False)
    possible = chain.rows[is_possible]
    return replace(sampled, rows=possible, is_complete=not replacement and count == len(possible))


def _labels(draw, chain):
    """Draw labels or the name of a field, and return also the groups."""
    if chain.row_steps == () and chain.words & {"fields", "frame"} and draw(st.booleans()):
        return FIELD, np.resize(chain.rows % 3, chain.length)
    groups = np.resize(chain.rows % draw(st.integers(1, 5)), chain.length)
    return groups, groups


def _require_field(chain, by):
    """Return the chain; without `steps` if `by` is a field that other arrays lack."""
    return replace(chain, steps=None) if isinstance(by, str) else chain


def _exact_rows(chain, positions):
    return chain.rows[positions] if chain.is_exact else None


def _row_nbytes(pipeline):
    return sum(spec.nbytes for spec in pipeline.specs)


def _same(row):
    return row

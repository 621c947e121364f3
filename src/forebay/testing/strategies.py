"""Hypothesis strategies for tests of pipelines: arrays in many memory layouts, trees, schedules, seeds."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from forebay.order.schedule import Schedule

__all__ = ["arrays", "dtypes", "schedules", "seeds", "trees"]

seeds = st.integers(min_value=0, max_value=2**63 - 1)
dtypes = st.sampled_from([np.dtype(name) for name in ("bool", "u1", "i2", ">i4", "i8", "f2", "f4", ">f8", "c8")])


@st.composite
def arrays(draw: st.DrawFn, *, rows: int) -> np.ndarray[Any, Any]:
    """Draw an array with `rows` rows in one of seven memory layouts."""
    shape = draw(st.lists(st.integers(1, 4), max_size=2).map(tuple))
    dtype = draw(dtypes)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    layout = draw(st.sampled_from(("plain", "columns", "strided", "reversed", "fortran", "transposed", "unaligned")))
    # `larger` has twice the rows and one more element per axis. Each layout arranges a part of `larger`.
    larger = random.integers(0, 100, (rows * 2, *(length + 1 for length in shape))).astype(dtype)
    part = (slice(rows), *(slice(length) for length in shape))
    match layout:
        case "plain":
            return np.ascontiguousarray(larger[part])
        case "columns":
            return larger[part]
        case "strided":
            return larger[(slice(None, None, 2), *part[1:])]
        case "reversed":
            return larger[part][::-1]
        case "fortran":
            return np.asfortranarray(larger[part])
        case "transposed":
            return np.ascontiguousarray(np.moveaxis(larger[part], 0, -1)).transpose(
                larger.ndim - 1, *range(larger.ndim - 1)
            )
        case _:
            plain = np.ascontiguousarray(larger[part])
            buffer = np.zeros(plain.nbytes + 1, np.uint8)[1:]
            unaligned: np.ndarray[Any, Any] = buffer.view(dtype).reshape(plain.shape)
            unaligned[...] = plain
            return unaligned


@st.composite
def trees(draw: st.DrawFn, *, rows: int) -> Any:
    """Draw an array, or a tuple, dict or nested tuple of equally long arrays."""
    leaf = arrays(rows=rows)
    structures = (
        leaf,
        st.tuples(leaf, leaf),
        st.dictionaries(st.sampled_from("abc"), leaf, min_size=1),
        st.tuples(leaf, st.tuples(leaf)),
    )
    return draw(st.one_of(*structures))


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Draw the schedule of a small epoch, with any shard, passes and batch limit."""
    shard_count = draw(st.integers(1, 5))
    return Schedule(
        pass_rows=draw(st.integers(1, 60)),
        batch_rows=draw(st.integers(1, 9)),
        drop_remainder=draw(st.booleans()),
        shard_index=draw(st.integers(0, shard_count - 1)),
        shard_count=shard_count,
        passes=draw(st.integers(1, 3)),
        batch_limit=draw(st.none() | st.integers(1, 12)),
    )

"""Pipelines with which the random chains of `row_chains` begin. Each row contains its number."""

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse as sp
from hypothesis import strategies as st
from PIL import Image
from tests.support.received import rows_of

import forebay as fb
from forebay.testing.strategies import seeds

__all__ = [
    "BASES",
    "FIELD",
    "Base",
    "bases",
    "first_values",
    "last_number",
    "number_of",
    "read_numbers",
    "scratch_folder",
]

MAX_ROWS = 40  # largest number of rows of such a pipeline
FIELD = "group"  # a field of dicts and frames: the row number modulo 3
SIDE = 3  # width and height of an image; its pixels have the row number


@dataclass(frozen=True)
class Base:
    """A pipeline with which a chain begins, and the numbers of its rows."""

    name: str
    pipeline: Any
    rows: Any


def arrays(draw, rows):
    return fb.from_arrays(rows)


def series(draw, rows):
    return fb.from_arrays(draw(st.sampled_from([pd.Series, pl.Series]))(rows))


def fields(draw, rows):
    return fb.from_arrays({"row": rows, FIELD: rows % 3})


def frame(draw, rows):
    return fb.from_frame(draw(st.sampled_from([pd.DataFrame, pl.DataFrame]))({"row": rows, FIELD: rows % 3}))


def sparse(draw, rows):
    """Draw sparse rows. The first value is the row number, so row 0 is empty."""
    return fb.from_arrays(sp.csr_array(np.outer(rows, [1, 0, 0, 2])))


def images(draw, rows):
    return fb.from_images([image_folder() / f"{row:03}.png" for row in rows.tolist()])


def packed(draw, rows):
    """Draw packed rows of texts. The first token identifies a row, because no two tokens of all texts are equal."""
    lengths = draw(st.lists(st.integers(0, 12), min_size=len(rows), max_size=len(rows)).filter(any))
    offsets = np.cumsum([0, *lengths])
    tokens = np.arange(offsets[-1])
    return fb.from_ragged(tokens, offsets).pack(draw(st.integers(1, 16)), seed=draw(seeds))


_MAKERS = (arrays, series, fields, frame, sparse, images, packed)
BASES = {maker.__name__: maker for maker in _MAKERS}


@st.composite
def bases(draw, name, first=0):
    """Draw a base of this name, whose row numbers begin with `first`."""
    rows = np.arange(first, first + draw(st.integers(1, MAX_ROWS)))
    pipeline = BASES[name](draw, rows)
    if name == "packed":
        (tokens,) = pipeline.source.gather_leaves([0], slice(0, len(pipeline.source)))
        rows = tokens[:, 0]
    return Base(name, pipeline, rows)


@cache
def scratch_folder():
    """Return a folder that is deleted when the process ends."""
    _FOLDERS.append(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
    return Path(_FOLDERS[-1].name)


_FOLDERS: list[Any] = []


@cache
def image_folder():
    """Write an image for each of the first 256 row numbers, and return the folder."""
    folder = scratch_folder() / "images"
    folder.mkdir()
    for row in range(256):
        Image.new("RGB", (SIDE, SIDE), (row, row, row)).save(folder / f"{row:03}.png")
    return folder


def read_numbers(pipeline, number=None):
    """Return the number of each row of an epoch. `number` is a function from a row to its number."""
    with pipeline.map(number or number_of).batch(7).feed("numpy") as feed:
        return rows_of(feed)


def number_of(row):
    """Return the number that a row contains. All parts of a zipped row have the same number."""
    return _only(number_of, row) if isinstance(row, dict | tuple) else np.int64(np.ravel(row)[0])


def last_number(window):
    """Return the number of the last row of a window."""
    return _only(last_number, window) if isinstance(window, dict | tuple) else np.int64(np.ravel(window[-1])[0])


def first_values(batch):
    """Return the numbers of the rows of a batch that a filter receives."""
    while isinstance(batch, dict | tuple):
        batch = batch[next(iter(batch))] if isinstance(batch, dict) else batch[0]
    return np.reshape(batch, (len(batch), -1))[:, 0]


def _only(number, row):
    parts = row if isinstance(row, tuple) else [next(iter(row.values()))]
    (found,) = {int(number(part)) for part in parts}
    return np.int64(found)

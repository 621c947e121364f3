"""Rows and functions that the tests of `cache()` use."""

import threading

import numpy as np
from PIL import Image

import forebay as fb
from forebay.core.source import AbstractSource
from forebay.core.spec import Structure

ROW_NBYTES = 8
IMAGES = fb.from_arrays(np.random.default_rng(0).integers(0, 256, (9, 4, 5, 3), np.uint8))


def square(row):
    return row * row


class Counted:
    """A function on rows that records its calls."""

    def __init__(self):
        self.rows, self._lock = [], threading.Lock()

    def __call__(self, row):
        with self._lock:
            self.rows.append(int(row))
        return row * 10


class RaggedRows(AbstractSource):
    """Rows of unknown length."""

    specs, structure = (fb.ArraySpec((None,), "float32"),), Structure(None)

    def __len__(self):
        return 2

    def gather(self, rows, out):
        raise AssertionError


def write_images(folder):
    generator = np.random.default_rng(0)
    for number in range(6):
        pixels = generator.integers(0, 256, (20, 30, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")

"""Functions that tests map over rows. Worker processes import this file, so it imports only NumPy."""

import numpy as np

__all__ = ["draw", "jitter", "same"]


def draw(row, rng):
    """Return a number after one to three 32-bit draws: one and three leave half of a number in the generator."""
    rng.integers(0, 2**32, 1 + int(row) % 3, np.uint32)
    return {"row": row, "drawn": rng.random()}


def jitter(row, rng):
    return {"row": row["row"], "drawn": row["drawn"] + rng.random()}


def same(row):
    return row

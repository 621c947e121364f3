"""Functions that tests map over rows. Worker processes import this file, so it imports only NumPy."""

import numpy as np

__all__ = ["draw", "jitter", "same"]


def draw(row, rng):
    """Return the row and a number that is drawn after one to three 32-bit draws.

    After one or three 32-bit draws, the generator keeps an unused half of a 64-bit number.
    """
    rng.integers(0, 2**32, 1 + int(row) % 3, np.uint32)
    return {"row": row, "drawn": rng.random()}


def jitter(row, rng):
    return {"row": row["row"], "drawn": row["drawn"] + rng.random()}


def same(row):
    return row

"""Loads the C functions that compute row numbers (`number_rows.c`).

They take 0.3 to 0.5 of the time of NumPy (docs/measurements.md#row-numbers-in-c). The pure wheel, and an installation
without a compiler, lack the library. NumPy then computes the same numbers.
"""

import ctypes
from pathlib import Path
from typing import Any

from forebay.core.c_functions import load_function

__all__ = ["load_draw_alias", "load_permute"]

_LIBRARY_FILE = Path(__file__).with_name("number_rows.so")  # built with the wheel
_POINTER = ctypes.c_void_p


def load_permute() -> Any:
    """Return the function that applies a permutation to positions; None without a compiled library.

    Its arguments are the address of the positions, their number, and the addresses of the results and constants.
    """
    return load_function(_LIBRARY_FILE, "forebay_permute", _POINTER, ctypes.c_int64, _POINTER, _POINTER)


def load_draw_alias() -> Any:
    """Return the function that draws from an alias table at positions; None without a compiled library.

    Its arguments are the address of the positions, their number, the addresses of the results and the table, the bits
    of a bucket number, and the key.
    """
    types = _POINTER, ctypes.c_int64, _POINTER, _POINTER, ctypes.c_int64, ctypes.c_uint64
    return load_function(_LIBRARY_FILE, "forebay_draw_alias", *types)

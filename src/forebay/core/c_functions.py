"""Functions of the C libraries that the wheel contains.

They are called through ctypes, which releases the GIL.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["address_of", "load_function"]


@cache
def load_function(library: Path, name: str, *argument_types: Any) -> Any:
    """Return the C function with this name, or None if its library cannot be used.

    The function must return an int64.
    """
    try:
        function = getattr(ctypes.CDLL(str(library)), name)
    except (OSError, AttributeError):  # the library is missing, or was compiled for another machine or version
        return None
    function.argtypes, function.restype = argument_types, ctypes.c_int64
    return function


def address_of(array: Any) -> int:
    """Return the address of the first byte of an array."""
    return int(array.__array_interface__["data"][0])

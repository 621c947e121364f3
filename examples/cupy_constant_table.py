"""CuPy: use a constant table in every step. `cupy.asarray` uploads it in each step, `upload_once` only once."""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import forebay as fb

SIDE, STEPS = (100, 10) if "--quick" in sys.argv else (2_000, 200)


def measure(name: str, convert: Callable[[Any], Any], table: Any, synchronize: Callable[[], None]) -> float:
    """Run the loop; print its time per step, and return its result."""
    total = convert(table).sum() * 0  # the first call is not timed
    synchronize()
    start = time.perf_counter()
    for step in range(STEPS):
        total += (convert(table) * step).sum()
    synchronize()
    print(f"{name}: {(time.perf_counter() - start) / STEPS * 1e3:.3f} ms per step")
    return float(total)


def main() -> None:
    table = np.random.default_rng(0).random((SIDE, SIDE), dtype=np.float32)
    print(f"{STEPS} steps with one table of {table.nbytes / 1e6:.2f} MB")
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy is not installed, or there is no driver
        print(f"CuPy found no GPU ({type(error).__name__}), so there is nothing to measure here.")
        print("On a GPU, compare the two times per step. The time of cupy.asarray includes an upload of the table:")
        print(f"{table.nbytes / 25e9 * 1e3:.3f} ms at 25 GB/s. The time of upload_once includes no upload.")
        return
    synchronize = cupy.cuda.Device().synchronize
    plain = measure("cupy.asarray", cupy.asarray, table, synchronize)
    once = measure("upload_once", lambda array: fb.upload_once(array, to="cupy"), table, synchronize)
    print(f"Compare the two times: the difference is the upload. The results are equal: {np.isclose(plain, once)}.")


if __name__ == "__main__":
    main()

"""CuPy: compute mean and deviation of all columns of an array that need not fit on the GPU."""

import sys
import time
from typing import Any

import numpy as np

import forebay as fb

try:
    import cupy

    xp: Any = cupy if cupy.cuda.runtime.getDeviceCount() else np
except Exception:  # CuPy is not installed, or there is no driver
    xp = np
ROWS, BATCH_ROWS = (20_000, 2_000) if "--quick" in sys.argv else (2_000_000, 50_000)
COLUMNS = 64


def main() -> None:
    rows = np.random.default_rng(0).normal(3, 2, (ROWS, COLUMNS)).astype(np.float32)
    total, squares = xp.zeros(COLUMNS), xp.zeros(COLUMNS)
    start, done = time.perf_counter(), 0
    with fb.from_arrays(rows).batch(BATCH_ROWS).feed(xp.__name__) as feed:
        for batch in feed:  # a cupy.ndarray, or a NumPy array without a GPU
            total += batch.sum(axis=0)
            squares += (batch**2).sum(axis=0)
            done += len(batch)
            if done % (ROWS // 5) == 0:
                print(f"{done:,} of {ROWS:,} rows")
        plan = feed.explain()
    mean = total / ROWS
    deviation = xp.sqrt(squares / ROWS - mean**2)
    print(f"first column: mean {float(mean[0]):.3f} (expected 3), deviation {float(deviation[0]):.3f} (expected 2)")
    seconds = time.perf_counter() - start  # float() has waited for the GPU
    if xp is np:
        print("CuPy found no GPU, so NumPy computed the sums. On a GPU, this script prints how many GB/s crossed the")
        print("link to the GPU. Compare this number with the speed of your link, which `forebay probe` measures.")
    else:
        print(plan)
        print(f"{rows.nbytes / seconds / 1e9:.1f} GB/s. `forebay probe` measures the speed of your link. Compare them.")


if __name__ == "__main__":
    main()

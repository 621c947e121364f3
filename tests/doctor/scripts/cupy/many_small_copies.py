"""The loop uploads every batch row by row."""

import cupy
import numpy as np

numbers = np.random.default_rng(0)
weights = cupy.ones(128)
for _ in range(60):
    batch = cupy.stack([cupy.asarray(row) for row in numbers.random((16, 128))])
    weights = weights - (batch @ weights) @ batch * 1e-4
    cupy.cuda.Stream.null.synchronize()
answer = float(weights.sum())

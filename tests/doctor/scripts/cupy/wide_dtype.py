"""NumPy makes float64, and all of it crosses before it is computed on in float32."""

import cupy
import numpy as np

numbers = np.random.default_rng(0)
weights = cupy.ones(512, dtype=cupy.float32)
for _ in range(60):
    batch = cupy.asarray(numbers.random((256, 512)))
    weights = weights - (batch @ weights) @ batch * 1e-6
answer = float(weights.sum())

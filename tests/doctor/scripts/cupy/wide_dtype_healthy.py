"""NumPy draws float32 batches, and the script uploads them before the loop."""

import cupy
import numpy as np

numbers = np.random.default_rng(0)
weights = cupy.ones(512, dtype=cupy.float32)
batches = cupy.asarray(numbers.random((4, 256, 512), dtype=np.float32))
for number in range(60):
    batch = batches[number % 4]
    weights = weights - (batch @ weights) @ batch * 1e-6
answer = float(weights.sum())

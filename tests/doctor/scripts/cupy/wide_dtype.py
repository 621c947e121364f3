"""NumPy draws float64 batches. The loop uploads the batches as float64, although the weights are float32."""

import cupy
import numpy as np

numbers = np.random.default_rng(0)
weights = cupy.ones(512, dtype=cupy.float32)
batches = [numbers.random((256, 512)) for _ in range(60)]
for rows in batches:
    batch = cupy.asarray(rows)
    weights = weights - (batch @ weights) @ batch * 1e-6
answer = float(weights.sum())

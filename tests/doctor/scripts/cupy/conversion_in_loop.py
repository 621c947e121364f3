"""The loop converts every batch from Python lists to a CuPy array."""

import cupy

rows = [[(row * 31 + column) % 97 / 97 for column in range(64)] for row in range(640)]
weights = cupy.ones(64)
for number in range(60):
    batch = cupy.array(rows[number % 20 * 32 :][:32])
    weights = weights - (batch @ weights) @ batch * 1e-4
answer = float(weights.sum())

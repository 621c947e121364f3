"""The residuals stay on the device. The script reads them all after the loop."""

import cupy

matrix = cupy.ones((1024, 1024)) * 1e-3
vector = cupy.ones(1024)
residuals = []
for _ in range(60):
    vector = cupy.tanh(matrix @ vector) + 0.1
    residuals.append(vector.mean())
answer = cupy.stack(residuals).get().tolist()[-1]

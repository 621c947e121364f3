"""The loop reads the residual back as a Python number in every iteration."""

import cupy

matrix = cupy.ones((1024, 1024)) * 1e-3
vector = cupy.ones(1024)
residuals = []
for _ in range(60):
    vector = cupy.tanh(matrix @ vector) + 0.1
    residuals.append(float(vector.mean()))
answer = residuals[-1]

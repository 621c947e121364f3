"""The residual is made a Python number in every round."""

import cupy

matrix = cupy.ones((64, 64)) * 1e-3
vector = cupy.ones(64)
residuals = []
for _ in range(60):
    vector = cupy.tanh(matrix @ vector) + 0.1
    residuals.append(float(vector.mean()))
answer = residuals[-1]

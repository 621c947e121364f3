"""The script creates the kernel once, before the loop."""

import cupy

double = cupy.ElementwiseKernel("T x", "T y", "y = x + x", "double_it")
values = cupy.ones(10_000)
for _ in range(60):
    values = double(values) % 1000.0
answer = float(values.sum())

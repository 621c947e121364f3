"""Newton's method computes 100 square roots, too few for a GPU.

The doctor must report `faster_on_cpu` here.
"""

import cupy

improve = cupy.ElementwiseKernel(
    "float64 x, float64 value, float64 slope", "float64 y", "y = x - value / slope", "improve"
)

squares = cupy.arange(1.0, 101.0)
roots = cupy.ones(100)
for _ in range(10_000):
    value = roots * roots - squares
    slope = cupy.maximum(2 * roots, 1e-3)
    roots = improve(roots, value, slope)
    roots = cupy.where(cupy.isfinite(roots), roots, 1.0)
    error = cupy.abs(value).max()

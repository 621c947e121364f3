"""Newton's method computes 20 million square roots, enough for a GPU.

The doctor must not report `faster_on_cpu` here.
"""

import cupy

improve = cupy.ElementwiseKernel(
    "float64 x, float64 value, float64 slope", "float64 y", "y = x - value / slope", "improve"
)

count = 20_000_000
squares = cupy.arange(1.0, count + 1.0)
roots = cupy.ones(count)
errors = []
for step in range(500):
    value = roots * roots - squares
    slope = cupy.maximum(2 * roots, 1e-3)
    roots = improve(roots, value, slope)
    roots = cupy.where(cupy.isfinite(roots), roots, 1.0)
    error = cupy.abs(value).max()
    if step % 10 == 9:
        errors.append(float(error))

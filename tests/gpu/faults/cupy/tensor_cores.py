"""The loop multiplies float32 matrices, which CuPy does without the tensor cores.

The doctor must report `tensor_cores` here.
"""

import cupy

damp = cupy.ElementwiseKernel("T x", "T y", "y = max((float)x, 0.1f * (float)x)", "damp")

rows, width = 4096, 4096
weights = cupy.random.standard_normal((width, width), dtype="float32") / width**0.5
state = cupy.random.random((rows, width), dtype="float32")

levels = []
for step in range(500):
    state = damp(state @ weights)
    state = cupy.tanh(state @ weights)
    if step % 10 == 9:
        levels.append(float(state.mean()))

"""Windows are page-locked, but the loop copies each on the compute stream, before its step.

The doctor must report `copy_not_overlapped` here.
"""

import cupy
import numpy as np

steps, rows, width = 500, 4096, 4096

generator = np.random.default_rng(0)
memory = cupy.cuda.alloc_pinned_memory(8 * rows * width * 2)
recording = np.frombuffer(memory, np.float16, 8 * rows * width).reshape(8 * rows, width)
recording[:] = generator.random((8 * rows, width), dtype="float32")
weights = cupy.random.standard_normal((width, width), dtype="float32").astype("float16")
window = cupy.empty((rows, width), "float16")

levels = []
for step in range(steps):
    start = generator.integers(7 * rows)
    window.set(recording[start : start + rows])
    level = ((window @ weights) @ weights).max()
    if step % 10 == 9:
        levels.append(float(level))

"""A second CUDA stream uploads the next rows of the array `recording` while the device computes the step.

The doctor must not report `copy_not_overlapped` here.
"""

import cupy
import numpy as np

steps, rows, width = 500, 4096, 4096

generator = np.random.default_rng(0)
memory = cupy.cuda.alloc_pinned_memory(8 * rows * width * 2)
recording = np.frombuffer(memory, np.float16, 8 * rows * width).reshape(8 * rows, width)
recording[:] = generator.random((8 * rows, width), dtype="float32")
weights = cupy.random.standard_normal((width, width), dtype="float32").astype("float16")
windows = [cupy.empty((rows, width), "float16") for _ in range(2)]
copy_stream, compute_stream = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
cupy.cuda.Device().synchronize()


def send(window):
    start = generator.integers(7 * rows)
    copy_stream.wait_event(compute_stream.record())  # wait for the step that last read this window
    window.set(recording[start : start + rows], stream=copy_stream)
    return copy_stream.record()


levels = []
arrived = send(windows[0])
for step in range(steps):
    compute_stream.wait_event(arrived)
    arrived = send(windows[(step + 1) % 2])
    with compute_stream:
        hidden = windows[step % 2] @ weights
        for _ in range(5):
            hidden = cupy.tanh(hidden @ weights)
        level = hidden.max()
        if step % 10 == 9:
            levels.append(float(level))

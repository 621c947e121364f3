"""The loop changes every batch and uploads it from page-locked memory."""

import cupy
import numpy as np

memory = cupy.cuda.alloc_pinned_memory(16 * 512 * 1024 * 4)
images = np.frombuffer(memory, np.float32, 16 * 512 * 1024).reshape(16, 512, 1024)
images[:] = np.random.default_rng(0).random((16, 512, 1024), dtype=np.float32)
total = cupy.zeros(1024, dtype=cupy.float32)
for number in range(60):
    images[number % 16, 0, :] = number
    batch = cupy.asarray(images[number % 16])
    total = total + batch[0]
answer = float(total.sum())

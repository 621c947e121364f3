"""The loop uploads windows of a recording, although the whole recording fits on the device."""

import cupy
import numpy as np
from stopwatch import Stopwatch

large = cupy.cuda.runtime.memGetInfo()[1] > 32e9
rounds, rows, width = (800, 2048, 4096) if large else (60, 128, 256)

generator = np.random.default_rng(0)
recording = generator.random((16 * rows, width), dtype="float32")
weights = cupy.asarray(generator.normal(0, width**-0.5, (width, width)).astype("float32"))

scores = []
stopwatch = Stopwatch(cupy.cuda.Device().synchronize)
for _ in range(rounds):
    start = generator.integers(15 * rows)
    window = cupy.asarray(recording[start : start + rows])
    scores.append(cupy.tanh(window @ weights).mean())
    stopwatch.lap()
stopwatch.print_step_time()

"""The loop reads the whole state back in every iteration, and NumPy counts NaN values."""

import cupy
import numpy as np
from stopwatch import Stopwatch

large = cupy.cuda.runtime.memGetInfo()[1] > 32e9
rounds, rows, width, depth = (500, 2048, 2048, 8) if large else (60, 512, 512, 1)

generator = np.random.default_rng(0)
weights = [cupy.asarray(generator.normal(0, width**-0.5, (width, width)).astype("float32")) for _ in range(depth)]
state = cupy.ones((rows, width), dtype="float32")

broken = 0
stopwatch = Stopwatch(cupy.cuda.Device().synchronize)
for _ in range(rounds):
    for weight in weights:
        state = cupy.tanh(state @ weight) + 0.1
    broken += int(np.isnan(cupy.asnumpy(state)).sum())
    stopwatch.lap()
stopwatch.print_step_time()

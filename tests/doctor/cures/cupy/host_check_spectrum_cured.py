"""The device counts the large values of each spectrum. The loop reads back the count."""

import cupy
import numpy as np
from stopwatch import Stopwatch

large = cupy.cuda.runtime.memGetInfo()[1] > 32e9
rounds, rows, samples, tones = (3000, 2560, 4096, 2048) if large else (60, 512, 256, 512)

generator = np.random.default_rng(0)
recordings = [cupy.asarray(generator.normal(0, 1, (rows, samples)).astype("float32")) for _ in range(4)]
taper = cupy.asarray(np.hanning(samples).astype("float32"))
angles = np.arange(samples)[:, None] * np.pi / samples * np.arange(tones)
cosines, sines = cupy.asarray(np.cos(angles).astype("float32")), cupy.asarray(np.sin(angles).astype("float32"))

loud = []
stopwatch = Stopwatch(cupy.cuda.Device().synchronize)
for step in range(rounds):
    tapered = recordings[step % 4] * taper
    even, odd = tapered @ cosines, tapered @ sines
    power = even * even + odd * odd
    loud.append(int((power > power.mean() * 4).sum()))
    stopwatch.lap()
stopwatch.print_step_time()

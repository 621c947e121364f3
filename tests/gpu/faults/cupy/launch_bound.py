"""A heat simulation on a small plate launches many short kernels per step.

The doctor must report `launch_bound` here.
"""

import cupy

relax = cupy.ElementwiseKernel(
    "float32 old, float32 fresh", "float32 mixed", "mixed = 0.5f * old + 0.5f * fresh", "relax"
)

heat = cupy.random.random((512, 512), dtype="float32")
for _ in range(500):
    spread = heat
    for _ in range(12):
        north, south = cupy.roll(spread, 1, axis=0), cupy.roll(spread, -1, axis=0)
        east, west = cupy.roll(spread, 1, axis=1), cupy.roll(spread, -1, axis=1)
        spread = (north + south + east + west) * cupy.float32(0.25)
    heat = relax(heat, spread)

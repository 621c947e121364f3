"""The loop simulates heat in a plate, and keeps every state on the device.

The doctor must report `out_of_memory` here.
"""

import cupy

cool = cupy.ElementwiseKernel(
    "float32 heat, float32 around", "float32 after", "after = 0.9f * heat + 0.1f * around", "cool"
)

heat = cupy.random.random((1024, 1024), dtype="float32")
states = []
for _ in range(800):
    around = heat
    for _ in range(40):
        around = (cupy.roll(around, 1, axis=0) + around) * cupy.float32(0.5)
    heat = cool(heat, around)
    states.append(heat)

"""One kernel computes a whole step, on a plate that keeps the device busy.

The doctor must not report `launch_bound` here.
"""

import cupy

spread = cupy.ElementwiseKernel(
    "raw float32 heat, int32 height, int32 width",
    "float32 mixed",
    """
    int row = i / width, column = i % width;
    int north = (row + height - 1) % height, south = (row + 1) % height;
    int west = (column + width - 1) % width, east = (column + 1) % width;
    float around = heat[north * width + column] + heat[south * width + column];
    around += heat[row * width + west] + heat[row * width + east];
    mixed = 0.5f * heat[i] + 0.125f * around;
    """,
    "spread",
)

height, width = 8192, 8192
heat, after = cupy.random.random((height, width), dtype="float32"), cupy.empty((height, width), "float32")
hottest = []
for step in range(500):
    spread(heat, height, width, after)
    heat, after = after, heat
    if step % 10 == 9:
        hottest.append(float(heat.max()))

"""A kernel with only eight blocks scales ten million numbers.

The doctor must report `low_occupancy` here.
"""

import cupy

damp = cupy.RawKernel(
    r"""
    extern "C" __global__ void damp(float* numbers, int count) {
        for (int i = blockDim.x * blockIdx.x + threadIdx.x; i < count; i += blockDim.x * gridDim.x)
            numbers[i] *= 0.999f;
    }
    """,
    "damp",
)

numbers = cupy.ones(10_000_000, dtype="float32")
sums = []
for step in range(500):
    damp((8,), (256,), (numbers, cupy.int32(len(numbers))))
    if step % 10 == 9:
        sums.append(float(numbers[0]))

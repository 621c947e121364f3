"""The device counts NaN values. The script reads the count once, after the loop."""

import cupy

field = cupy.ones((512, 512))
wrong = cupy.zeros((), dtype=cupy.int64)
for _ in range(60):
    field = cupy.tanh(field) + 0.1
    wrong = wrong + cupy.isnan(field).sum()
if int(wrong):
    raise FloatingPointError(f"{wrong} values are NaN")
answer = float(field.mean())

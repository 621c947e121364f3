"""Every iteration reads the whole field back, and NumPy checks the field for NaN."""

import cupy
import numpy as np

field = cupy.ones((512, 512))
for number in range(60):
    field = cupy.tanh(field) + 0.1
    if np.isnan(cupy.asnumpy(field)).any():
        raise FloatingPointError(f"round {number}")
answer = float(field.mean())

"""A few dozen tiny NumPy operations, some 0.25 ms: stands in for the torch step where torch is not installed."""

import numpy as np

__all__ = ["DESCRIPTION", "step"]

LAYERS = 12
DESCRIPTION = f"{3 * LAYERS} tiny NumPy operations (torch is not installed, so the GIL is given away less often)"

_generator = np.random.default_rng(0)
_inputs, _scale, _shift = (_generator.standard_normal((160, 192), np.float32) for _ in range(3))


def step() -> None:
    hidden = _inputs
    for _ in range(LAYERS):
        hidden = np.maximum(np.add(np.multiply(hidden, _scale), _shift), 0)

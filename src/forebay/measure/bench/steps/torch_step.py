"""A few dozen tiny torch operations, some 0.25 ms: each gives the GIL away and must win it back, as a launch does."""

import torch

__all__ = ["DESCRIPTION", "step"]

LAYERS = 12
DESCRIPTION = f"{3 * LAYERS} tiny torch operations on the CPU"

# Under the 32768 elements from which torch uses threads, and neither tanh nor a matrix product, which use them earlier:
# a step that waits for a second core would measure whatever else that core does.
_inputs, _scale, _shift = (torch.randn(160, 192) for _ in range(3))


def step() -> None:
    hidden = _inputs
    for _ in range(LAYERS):
        hidden = torch.relu(torch.add(torch.mul(hidden, _scale), _shift))

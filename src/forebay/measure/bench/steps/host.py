"""The step of the busy consumer on the host: many tiny operations.

Each operation releases the GIL and must acquire it again, like the launch of a kernel. So a loader that uses much CPU
or holds the GIL slows the step visibly. A step takes about 0.25 ms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

__all__ = ["HostStep", "make_host_step"]

LAYERS = 12
OPERATIONS = 3 * LAYERS
# torch uses several threads from 32768 elements on, and from fewer elements for tanh and matrix products. With several
# threads, the time of a step would depend on the other cores. Therefore the arrays have 30720 elements, and the step
# uses only simple element-wise operations.
SHAPE = (160, 192)


@dataclass(frozen=True, slots=True)
class HostStep:
    """One training step, and a description of its operations."""

    run: Callable[[], None]
    description: str


def make_host_step() -> HostStep:
    """Make a torch step, or without torch a NumPy step.

    The NumPy step releases the GIL less often.
    """
    if find_spec("torch"):
        return HostStep(_torch_step(), f"{OPERATIONS} tiny torch operations on the CPU")
    return HostStep(
        _numpy_step(),
        f"{OPERATIONS} tiny NumPy operations (torch is not installed, so the step releases the GIL less often)",
    )


def _torch_step() -> Callable[[], None]:
    import torch

    inputs, scale, shift = (torch.randn(*SHAPE) for _ in range(3))

    def step() -> None:
        hidden = inputs
        for _ in range(LAYERS):
            hidden = torch.relu(torch.add(torch.mul(hidden, scale), shift))

    return step


def _numpy_step() -> Callable[[], None]:
    import numpy as np

    generator = np.random.default_rng(0)
    inputs, scale, shift = (generator.standard_normal(SHAPE, np.float32) for _ in range(3))

    def step() -> None:
        hidden = inputs
        for _ in range(LAYERS):
            hidden = np.maximum(np.add(np.multiply(hidden, scale), shift), 0)

    return step

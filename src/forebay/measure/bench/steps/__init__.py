"""Training steps: on the host (`host.py`), and on the device, one file per framework.

A step on the device multiplies matrices, beginning with the batch, as often as requested.
"""

from importlib import import_module
from typing import Any, Protocol, cast

__all__ = ["MATRIX_SIZE", "DeviceStep", "load_step"]

# Rows and columns of the square fp32 matrices. A product takes about 50 us, so the length of a step can be chosen.
MATRIX_SIZE = 1024


class DeviceStep(Protocol):
    """The step of one framework; `make_step()` of its file makes one."""

    def run(self, batch: Any, products: int) -> None:
        """Queue a step."""
        ...

    def wait(self) -> None:
        """Wait for the end of the last step."""
        ...


def load_step(framework: str) -> DeviceStep:
    return cast("DeviceStep", import_module(f"{__name__}.{framework}").make_step())

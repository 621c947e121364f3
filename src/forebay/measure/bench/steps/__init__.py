"""Training steps: `host.py` for the host, and one file per framework for the device.

A step on the device multiplies a part of the batch by random weights, as often as the caller requests.
"""

from importlib import import_module
from typing import Any, Protocol, cast

__all__ = ["MATRIX_SIZE", "DeviceStep", "load_step"]

# Rows and columns of the square fp32 matrices. On an H200, a product takes about 50 us, so the number of products sets
# the time of a step in units of 50 us.
MATRIX_SIZE = 1024


class DeviceStep(Protocol):
    """The step of one framework. Each file has a function `make_step()`."""

    def run(self, batch: Any, products: int) -> None:
        """Queue a step with this number of matrix products."""
        ...

    def wait(self) -> None:
        """Wait for the end of the last step."""
        ...


def load_step(framework: str) -> DeviceStep:
    """Import the file of a framework, and make its step."""
    return cast("DeviceStep", import_module(f"{__name__}.{framework}").make_step())

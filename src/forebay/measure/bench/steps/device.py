"""A training step on the device: matrix products that begin with the batch, as many as asked for."""

from importlib import import_module
from typing import Any, Protocol, cast

__all__ = ["EDGE", "DeviceStep", "load_step"]

EDGE = 1024  # of the square matrices, in fp32: some 50 us a product, so that steps can be made as long as wanted


class DeviceStep(Protocol):
    """One framework's step; `step()` of its file makes one."""

    def run(self, batch: Any, products: int) -> None:
        """Queue a step."""
        ...

    def wait(self) -> None:
        """Wait until the last step is done."""
        ...


def load_step(framework: str) -> DeviceStep:
    return cast("DeviceStep", import_module(f"forebay.measure.bench.steps.device_{framework}").step())

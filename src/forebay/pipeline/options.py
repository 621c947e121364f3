"""The options of `Pipeline.feed()`. The feed, the Keras adapter and the command line share them."""

from dataclasses import dataclass, fields
from typing import Any

from forebay.core.engine import Engine

__all__ = ["FeedOptions"]


@dataclass(frozen=True)  # without slots: signatures read the defaults from the class
class FeedOptions:
    """Where batches go, and how much memory a feed may take."""

    to: str = "numpy"  # the framework
    device: str | Engine = "auto"  # "auto", "cpu", "cuda", "cuda:1", or an engine
    resident: str = "auto"  # keep the rows on the device: "auto", "always" or "never"
    host_bytes: int | str = "256MiB"  # upper limit of host memory, without the source
    device_bytes: int | str | None = None  # upper limit of device memory; None: a share of the free memory

    def without_target(self) -> dict[str, Any]:
        """Return all options except `to`, as keywords for an adapter that chooses its own framework."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "to"}

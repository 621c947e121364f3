"""The options of `Pipeline.feed()`, which the feed, the Keras adapter and the command line share."""

from dataclasses import dataclass, fields
from typing import Any

__all__ = ["FeedOptions"]


@dataclass(frozen=True)  # no slots, because signatures read the defaults as class attributes
class FeedOptions:
    """The framework and device that receive batches, and memory limits of a feed."""

    to: str = "numpy"  # the framework
    device: Any = "auto"  # "auto", "cpu", "cuda", "cuda:1", an engine, or the framework's object for several devices
    resident: str = "auto"  # whether rows stay on the device: "auto", "always" or "never"
    host_bytes: int | str = "256MiB"  # upper limit of the host memory that the feed allocates, not counting the source
    device_bytes: int | str | None = None  # upper limit of device memory; None: a share of the free memory

    def keywords_except_to(self) -> dict[str, Any]:
        """Return all options except `to`, for an adapter that chooses the framework itself."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "to"}

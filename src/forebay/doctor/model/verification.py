"""What came of trying the main cause's cure: predicted beside measured, or why there is nothing to show. Pure."""

from dataclasses import dataclass

from forebay.doctor.model.emulation import Way

__all__ = ["Verification"]


@dataclass(frozen=True, slots=True)
class Verification:
    """One run of the script with a cure emulated."""

    way: Way | None = None  # None where this cure has none
    predicted: tuple[float, float] | None = None  # seconds of a step with this cure: at best, at worst
    measured: float | None = None  # None where no step was
    trouble: str = ""  # why not, in words

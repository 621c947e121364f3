"""Driver readings of each GPU while the loop ran, and remarks about problems."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.formatting import format_percent

__all__ = ["Gauges", "read_gauges", "gauge_remarks"]

LEAST_SHARE = 0.2  # of the samples; shorter drops of the clock are ignored
LOW_CLOCK_SHARE = 0.95  # of the highest clock
IDLE_SHARE = 0.02  # of the time busy; an idle GPU lowers its clock and link to save power

SATURATED_SHARE = 0.8  # of the link bandwidth, between two samples
_LANE_BYTES_PER_SECOND = {1: 0.25e9, 2: 0.5e9, 3: 0.98e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}  # by PCIe generation

# NVML bits for clock limits that slow work down.
_REASONS = {
    0x2: "manually set clocks",
    0x4: "the power limit",
    0x8: "a hardware slowdown",
    0x20: "heat",
    0x40: "heat",
    0x80: "the power supply",
}


@dataclass(frozen=True, slots=True)
class Gauges:
    """Mean readings of one GPU while the loop ran; None if the driver does not report a value."""

    name: str
    samples: int
    busy: float | None  # share of the time in which a kernel ran
    clock_mhz: float | None
    most_clock_mhz: int | None
    held_back: tuple[tuple[str, float], ...]  # reason and share of the samples, most frequent first
    link_generation: int | None  # the highest reading, because an idle link slows down
    most_link_generation: int | None
    link_width: int | None
    most_link_width: int | None
    received_bytes_per_second: float | None
    sent_bytes_per_second: float | None
    watts: float | None
    most_watts: float | None
    used_nbytes: int | None  # by all processes, at most
    total_nbytes: int | None


def read_gauges(view: CaptureView) -> tuple[Gauges, ...]:
    """Return the readings of each GPU; empty if the script sees no GPU."""
    if not view.has_gpu:
        return ()
    readings: list[dict[str, Any]] = view.capture.facts.get("gauges") or []
    return tuple(_gauges(gpu, _inside(view, gpu["samples"])) for gpu in readings if gpu["samples"])


def gauge_remarks(gauges: Gauges) -> Iterator[str]:
    """Yield problems of a GPU that no line of the script causes."""
    if gauges.busy is not None and gauges.busy <= IDLE_SHARE:
        return
    for reason, share in gauges.held_back[:1]:
        if share >= LEAST_SHARE and _is_slow(gauges):
            clocks = f"{gauges.clock_mhz:,.0f} of {gauges.most_clock_mhz:,} MHz"
            yield f"{reason} limited its clock in {format_percent(share)} of the samples ({clocks})"
    if _below(gauges.link_width, gauges.most_link_width):
        lanes = f"{gauges.link_width} of {gauges.most_link_width} lanes"
        yield f"its link has {lanes}; check the slot and the BIOS settings"
    if _below(gauges.link_generation, gauges.most_link_generation):
        best = gauges.most_link_generation
        yield f"its link runs at PCIe {gauges.link_generation} although PCIe {best} is possible"
    if _link_share(gauges) >= SATURATED_SHARE:
        yield f"its link is {format_percent(min(1.0, _link_share(gauges)))} full; only fewer bytes would help"


def _is_slow(gauges: Gauges) -> bool:
    known = gauges.clock_mhz is not None and gauges.most_clock_mhz
    return bool(known) and (gauges.clock_mhz or 0.0) < LOW_CLOCK_SHARE * (gauges.most_clock_mhz or 0)


def _link_share(gauges: Gauges) -> float:
    """Return the load of the busier direction of the link; 0 if unknown."""
    lane = _LANE_BYTES_PER_SECOND.get(gauges.link_generation or 0, 0.0)
    carried = max(gauges.received_bytes_per_second or 0.0, gauges.sent_bytes_per_second or 0.0)
    return carried / (lane * gauges.link_width) if lane and gauges.link_width else 0.0


def _below(value: int | None, most: int | None) -> bool:
    return value is not None and most is not None and 0 < value < most


def _inside(view: CaptureView, samples: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the samples of the loop; for a very short loop, all samples."""
    return [sample for sample in samples if sample["at"] >= view.capture.window.start] or samples


def _gauges(gpu: dict[str, Any], samples: Sequence[dict[str, Any]]) -> Gauges:
    return Gauges(
        name=gpu["name"],
        samples=len(samples),
        busy=_mean(samples, "busy"),
        clock_mhz=_mean(samples, "clock_mhz"),
        most_clock_mhz=gpu["most_clock_mhz"],
        held_back=_held_back(samples),
        link_generation=_most(samples, "link_generation"),
        most_link_generation=gpu["most_link_generation"],
        link_width=_most(samples, "link_width"),
        most_link_width=gpu["most_link_width"],
        received_bytes_per_second=_mean(samples, "received_bytes_per_second"),
        sent_bytes_per_second=_mean(samples, "sent_bytes_per_second"),
        watts=_mean(samples, "watts"),
        most_watts=gpu["most_watts"],
        used_nbytes=_most(samples, "used_nbytes"),
        total_nbytes=gpu["total_nbytes"],
    )


def _held_back(samples: Sequence[dict[str, Any]]) -> tuple[tuple[str, float], ...]:
    bits = [sample["held_back"] for sample in samples if sample["held_back"] is not None]
    masks = {name: sum(bit for bit, reason in _REASONS.items() if reason == name) for name in _REASONS.values()}
    shares = [(name, sum(bool(value & mask) for value in bits) / len(bits)) for name, mask in masks.items() if bits]
    return tuple(sorted(((name, share) for name, share in shares if share), key=lambda pair: -pair[1]))


def _known(samples: Sequence[dict[str, Any]], name: str) -> list[Any]:
    return [sample[name] for sample in samples if sample[name] is not None]


def _mean(samples: Sequence[dict[str, Any]], name: str) -> float | None:
    known = _known(samples, name)
    return fmean(known) if known else None


def _most(samples: Sequence[dict[str, Any]], name: str) -> Any:
    return max(_known(samples, name), default=None)

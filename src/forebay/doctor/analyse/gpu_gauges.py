"""What the driver's gauges said of each GPU while the loop ran, and what of that is not as it should be. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from forebay.doctor.analyse.case import Case
from forebay.doctor.model.formatting import percent

__all__ = ["Gauges", "gauges_of", "remarks_on"]

LEAST_SHARE = 0.2  # of the samples: a clock that dips once is nothing
LOW_CLOCK = 0.95  # of the fastest
IDLE = 0.02  # of the time: a GPU that does so little saves power, clocks and lanes

SATURATED = 0.8  # of what a link carries, over all the time between two samples
_LANE_BYTES_PER_SECOND = {1: 0.25e9, 2: 0.5e9, 3: 0.98e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}  # by PCIe generation

# Bits of NVML's reasons for a clock below the fastest, those that hold work back.
_REASONS = {
    0x2: "clocks that were set by hand",
    0x4: "its power limit",
    0x8: "a slowdown of the hardware",
    0x20: "heat",
    0x40: "heat",
    0x80: "its power supply",
}


@dataclass(frozen=True, slots=True)
class Gauges:
    """One GPU: means of the samples taken while the loop ran. None where it does not tell."""

    name: str
    samples: int
    busy: float | None  # share of the time that any kernel ran
    clock_mhz: float | None
    most_clock_mhz: int | None
    held_back: tuple[tuple[str, float], ...]  # by what, in which share of the samples; the most frequent first
    link_generation: int | None  # the best seen: a link at rest slows down by itself
    most_link_generation: int | None
    link_width: int | None
    most_link_width: int | None
    received_bytes_per_second: float | None
    sent_bytes_per_second: float | None
    watts: float | None
    most_watts: float | None
    used_nbytes: int | None  # by anybody, at most
    total_nbytes: int | None


def gauges_of(case: Case) -> tuple[Gauges, ...]:
    """GPUs that were sampled, where the script sees any."""
    if not case.has_gpu:
        return ()
    told: list[dict[str, Any]] = case.capture.facts.get("gauges") or []
    return tuple(_gauges(gpu, _inside(case, gpu["samples"])) for gpu in told if gpu["samples"])


def remarks_on(gauges: Gauges) -> Iterator[str]:
    """What holds a GPU back that no line of the script does."""
    if gauges.busy is not None and gauges.busy <= IDLE:
        return
    for reason, share in gauges.held_back[:1]:
        if share >= LEAST_SHARE and _is_slow(gauges):
            clocks = f"{gauges.clock_mhz:,.0f} of {gauges.most_clock_mhz:,} MHz"
            yield f"{reason} held it back in {percent(share)} of the samples: {clocks}"
    if _below(gauges.link_width, gauges.most_link_width):
        yield f"its link has {gauges.link_width} of {gauges.most_link_width} lanes: look at the slot and at the BIOS"
    if _below(gauges.link_generation, gauges.most_link_generation):
        best = gauges.most_link_generation
        yield f"its link runs as PCIe {gauges.link_generation}, though it could as PCIe {best}"
    if _link_share(gauges) >= SATURATED:
        yield f"its link is {percent(min(1.0, _link_share(gauges)))} full: only fewer bytes would help"


def _is_slow(gauges: Gauges) -> bool:
    known = gauges.clock_mhz is not None and gauges.most_clock_mhz
    return bool(known) and (gauges.clock_mhz or 0.0) < LOW_CLOCK * (gauges.most_clock_mhz or 0)


def _link_share(gauges: Gauges) -> float:
    """How full the fuller direction is; 0 where it is not known."""
    lane = _LANE_BYTES_PER_SECOND.get(gauges.link_generation or 0, 0.0)
    carried = max(gauges.received_bytes_per_second or 0.0, gauges.sent_bytes_per_second or 0.0)
    return carried / (lane * gauges.link_width) if lane and gauges.link_width else 0.0


def _below(value: int | None, most: int | None) -> bool:
    return value is not None and most is not None and 0 < value < most


def _inside(case: Case, samples: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Those of the loop; where it was too short for one, whatever there is."""
    return [sample for sample in samples if sample["at"] >= case.capture.window.start] or samples


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
    names = dict.fromkeys(_REASONS.values())
    shares = [
        (name, sum(any(value & bit for bit, told in _REASONS.items() if told == name) for value in bits) / len(bits))
        for name in (names if bits else ())
    ]
    return tuple(sorted(((name, share) for name, share in shares if share), key=lambda pair: -pair[1]))


def _known(samples: Sequence[dict[str, Any]], name: str) -> list[Any]:
    return [sample[name] for sample in samples if sample[name] is not None]


def _mean(samples: Sequence[dict[str, Any]], name: str) -> float | None:
    known = _known(samples, name)
    return fmean(known) if known else None


def _most(samples: Sequence[dict[str, Any]], name: str) -> Any:
    return max(_known(samples, name), default=None)

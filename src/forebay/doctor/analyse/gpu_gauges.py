"""NVML readings of each GPU during the loop, and remarks about problems of a GPU."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.memory import memory_usage
from forebay.doctor.model.formatting import format_percent

__all__ = [
    "Gauges",
    "computes_on_gpu",
    "gauge_remarks",
    "is_idle",
    "leaves_gpu_unused",
    "link_bandwidth",
    "read_gauges",
]

MIN_SHARE = 0.2  # share of the readings; a clock that was limited in fewer readings gets no remark
LOW_CLOCK_SHARE = 0.95  # of `Gauges.most_clock_mhz`; a lower mean is a low clock
# Share of the time. A GPU that is busy for less time is idle. It gets no remarks, because an idle GPU slows its clock
# and its link down to save power.
IDLE_SHARE = 0.02

SATURATED_SHARE = 0.8  # share of the link bandwidth; a link with more load gets a remark
# PCIe generation -> bandwidth of one lane in one direction.
_LANE_BYTES_PER_SECOND = {1: 0.25e9, 2: 0.5e9, 3: 0.98e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}

# Bit in NVML's mask of reasons that limit the clock -> its text. Reasons that do not slow work down are omitted.
_CLOCK_LIMITS = {
    0x2: "manually set clocks",
    0x4: "the power limit",
    0x8: "a hardware slowdown",
    0x20: "heat",
    0x40: "heat",
    0x80: "the power supply",
}


@dataclass(frozen=True, slots=True)
class Gauges:
    """NVML's readings of one GPU during the loop.

    Numbers without a comment are means. A field is None if NVML does not report its value. The fields `most_*` and
    `total_nbytes` are limits of the hardware or its settings, not readings. The names of the fields are also keys of
    the JSON report.
    """

    name: str
    samples: int  # number of readings
    busy: float | None  # mean share of the time in which a kernel ran
    clock_mhz: float | None
    most_clock_mhz: int | None
    held_back: tuple[tuple[str, float], ...]  # reasons that limited the clock, with their shares of the readings
    link_generation: int | None  # the highest reading, because an idle link slows down
    most_link_generation: int | None
    link_width: int | None  # number of PCIe lanes; the highest reading
    most_link_width: int | None
    received_bytes_per_second: float | None
    sent_bytes_per_second: float | None
    watts: float | None
    most_watts: float | None
    used_nbytes: int | None  # by all processes; the highest reading
    total_nbytes: int | None


def read_gauges(view: CaptureView) -> tuple[Gauges, ...]:
    """Return the readings of each GPU; empty if no framework sees a GPU."""
    if not view.has_gpu:
        return ()
    readings: list[dict[str, Any]] = view.capture.facts.get("gauges") or []
    return tuple(_make_gauges(gpu, _samples_in_loop(view, gpu["samples"])) for gpu in readings if gpu["samples"])


def leaves_gpu_unused(view: CaptureView) -> bool:
    """Whether a PyTorch script trains on the CPU although PyTorch sees a GPU.

    TensorFlow and JAX use a GPU by default, so only scripts of PyTorch leave it unused by mistake. The result is True
    only if the device was recorded, no operation ran on it, and no framework used its memory or page-locked memory.
    """
    device = view.capture.device
    if not view.frameworks.get("torch", {}).get("gpus") or device is None or len(device.records):
        return False
    return not any(level.framework is not None and level.peak_nbytes for level in memory_usage(view).levels)


def link_bandwidth(generation: int | None, width: int | None) -> float:
    """Return the nominal bytes per second of a PCIe link in one direction; 0 if unknown."""
    return _LANE_BYTES_PER_SECOND.get(generation or 0, 0.0) * (width or 0)


def computes_on_gpu(view: CaptureView) -> bool:
    """Whether the script computes on a GPU, or may do so: without records of the device, a visible GPU counts."""
    return view.device is not None or (view.has_gpu and not leaves_gpu_unused(view))


def is_idle(gauges: Gauges) -> bool:
    """Whether the GPU was idle in almost all of the time; False if unknown."""
    return gauges.busy is not None and gauges.busy <= IDLE_SHARE


def gauge_remarks(gauges: Gauges) -> Iterator[str]:
    """Yield remarks about a busy GPU's limited clock, slow link or full link."""
    if is_idle(gauges):
        return
    for reason, share in gauges.held_back[:1]:
        if share >= MIN_SHARE and _is_clock_low(gauges):
            clocks = f"{gauges.clock_mhz:,.0f} of {gauges.most_clock_mhz:,} MHz"
            yield f"{reason} limited its clock in {format_percent(share)} of the readings ({clocks})"
    if _is_below(gauges.link_width, gauges.most_link_width):
        lanes = f"{gauges.link_width} of {gauges.most_link_width} lanes"
        yield f"its PCIe link has {lanes}; check the slot and the BIOS settings"
    if _is_below(gauges.link_generation, gauges.most_link_generation):
        best = gauges.most_link_generation
        yield f"its link runs at PCIe {gauges.link_generation} although PCIe {best} is possible"
    if _link_load(gauges) >= SATURATED_SHARE:
        yield f"its PCIe link is {format_percent(min(1.0, _link_load(gauges)))} full; copy fewer bytes to relieve it"


def _is_clock_low(gauges: Gauges) -> bool:
    """Whether the mean clock was low; False if unknown."""
    is_reported = gauges.clock_mhz is not None and gauges.most_clock_mhz
    return bool(is_reported) and (gauges.clock_mhz or 0.0) < LOW_CLOCK_SHARE * (gauges.most_clock_mhz or 0)


def _link_load(gauges: Gauges) -> float:
    """Return the share of the link bandwidth that the busier direction uses; 0 if unknown."""
    bandwidth = link_bandwidth(gauges.link_generation, gauges.link_width)
    bytes_per_second = max(gauges.received_bytes_per_second or 0.0, gauges.sent_bytes_per_second or 0.0)
    return bytes_per_second / bandwidth if bandwidth else 0.0


def _is_below(value: int | None, maximum: int | None) -> bool:
    return value is not None and maximum is not None and 0 < value < maximum


def _samples_in_loop(view: CaptureView, samples: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the readings in the loop, or all readings if there are none.

    The loop lasts from the first profiled step to the last unprofiled step.
    """
    window = view.capture.window
    end = max((window.end, *window.traced)) + sum(window.untraced) * 1e9
    return [sample for sample in samples if window.start <= sample["at"] <= end] or samples


def _make_gauges(gpu: dict[str, Any], samples: Sequence[dict[str, Any]]) -> Gauges:
    return Gauges(
        name=gpu["name"],
        samples=len(samples),
        busy=_mean_of(samples, "busy"),
        clock_mhz=_mean_of(samples, "clock_mhz"),
        most_clock_mhz=gpu["most_clock_mhz"],
        held_back=_clock_limit_shares(samples),
        link_generation=_maximum_of(samples, "link_generation"),
        most_link_generation=gpu["most_link_generation"],
        link_width=_maximum_of(samples, "link_width"),
        most_link_width=gpu["most_link_width"],
        received_bytes_per_second=_mean_of(samples, "received_bytes_per_second"),
        sent_bytes_per_second=_mean_of(samples, "sent_bytes_per_second"),
        watts=_mean_of(samples, "watts"),
        most_watts=gpu["most_watts"],
        used_nbytes=_maximum_of(samples, "used_nbytes"),
        total_nbytes=gpu["total_nbytes"],
    )


def _clock_limit_shares(samples: Sequence[dict[str, Any]]) -> tuple[tuple[str, float], ...]:
    """Return pairs: a reason that limited the clock, and its share of readings; largest first."""
    bit_masks = [sample["held_back"] for sample in samples if sample["held_back"] is not None]
    reason_masks = dict.fromkeys(_CLOCK_LIMITS.values(), 0)
    for bit, reason in _CLOCK_LIMITS.items():
        reason_masks[reason] |= bit
    shares = [
        (reason, sum(bool(bit_mask & reason_mask) for bit_mask in bit_masks) / len(bit_masks))
        for reason, reason_mask in reason_masks.items()
        if bit_masks
    ]
    return tuple(sorted(((reason, share) for reason, share in shares if share), key=lambda pair: -pair[1]))


def _reported_values(samples: Sequence[dict[str, Any]], name: str) -> list[Any]:
    return [sample[name] for sample in samples if sample[name] is not None]


def _mean_of(samples: Sequence[dict[str, Any]], name: str) -> float | None:
    reported = _reported_values(samples, name)
    return fmean(reported) if reported else None


def _maximum_of(samples: Sequence[dict[str, Any]], name: str) -> Any:
    return max(_reported_values(samples, name), default=None)

"""Speeds of machines for predictions, from the probe or by the name of the GPU.

`DEVICES` has peak rates from NVIDIA's data sheets, without sparsity. Predictions use only the ratio of the rates of two
GPUs; the rule `memory_bound` compares measured rates with the peak rates. `LINKS` has the speeds of PCIe with 16 lanes,
and of NVLink-C2C. Only PCIe 5 was measured (on an H200). For PCIe 3 and 4, uploads from page-locked memory are assumed
to reach 79 % of the nominal rate. For uploads from pageable memory, a copy by the CPU is the limit. If NVML reports
the PCIe link of a machine without a probe, the predictions use this link instead of the usual link of the GPU.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from forebay.core.ceilings import Probe
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.gpu_gauges import is_idle, link_bandwidth, read_gauges
from forebay.doctor.predict.timeline import DeviceOperation, Timeline
from forebay.errors import CaptureError

__all__ = [
    "DEVICES",
    "LINKS",
    "MachineSpeeds",
    "validate_machine",
    "machine_speeds",
    "speeds_of_gpu",
    "gpu_name",
    "find_gpu",
    "on_other_machine",
]

MEASURED_ON = "NVIDIA H200"
GATHER_BYTES_PER_SECOND = 1.3e12  # of a kernel that selects rows of 400 bytes in the memory of an H200
HOST_COPY_BYTES_PER_SECOND = 8.8e9  # of one thread that copies between host arrays
LAUNCH_SECONDS = 2.5e-6  # host time per kernel launch
PINNED_SHARE = 0.87  # of the nominal rate of PCIe 5; uploads from page-locked memory reached it on an H200
ASSUMED_PINNED_SHARE = 0.79  # the same for PCIe 1 to 4, which were not measured
MIN_SCALED_SECONDS = 5e-6  # neither arithmetic nor memory limits a shorter kernel


@dataclass(frozen=True, slots=True)
class GpuPeaks:
    """Peak rates of a GPU, and its usual link to the host."""

    bfloat16: float  # teraflops, dense; float16 on GPUs without bfloat16
    float32: float  # teraflops
    memory: float  # terabytes per second
    link: str  # a key of LINKS


@dataclass(frozen=True, slots=True)
class LinkSpeeds:
    """Bytes per second of an upload over a link."""

    pinned: float  # from page-locked host memory
    pageable: float  # from pageable host memory


LINKS = {
    "pcie3": LinkSpeeds(12.5e9, 6e9),
    "pcie4": LinkSpeeds(25e9, 8e9),
    "pcie5": LinkSpeeds(54.8e9, 8e9),
    "c2c": LinkSpeeds(350e9, 30e9),  # NVLink between Grace and the GPU; not measured
}
# `find_gpu` uses the first name that matches, so a name comes before the shorter names that it contains.
DEVICES = {
    "gb200": GpuPeaks(2500, 80, 8.0, "c2c"),
    "b200": GpuPeaks(2250, 80, 8.0, "pcie5"),
    "gh200": GpuPeaks(989, 67, 4.0, "c2c"),
    "h200": GpuPeaks(989, 67, 4.8, "pcie5"),
    "h100-pcie": GpuPeaks(756, 51, 2.0, "pcie5"),
    "h100": GpuPeaks(989, 67, 3.35, "pcie5"),
    "a100": GpuPeaks(312, 19.5, 2.04, "pcie4"),
    "a10": GpuPeaks(125, 31.2, 0.6, "pcie4"),
    "l40s": GpuPeaks(362, 91.6, 0.864, "pcie4"),
    "l40": GpuPeaks(181, 90.5, 0.864, "pcie4"),
    "l4": GpuPeaks(121, 30.3, 0.3, "pcie4"),
    "rtx5090": GpuPeaks(210, 104.8, 1.79, "pcie5"),
    "rtx4090": GpuPeaks(165, 82.6, 1.01, "pcie4"),
    "rtx3090": GpuPeaks(71, 35.6, 0.936, "pcie4"),
    "v100": GpuPeaks(125, 15.7, 0.9, "pcie3"),
    "t4": GpuPeaks(65, 8.1, 0.32, "pcie3"),
}


@dataclass(frozen=True, slots=True)
class MachineSpeeds:
    """Speeds of a machine, in bytes per second unless the name says otherwise."""

    gpu: str  # the driver's name for the GPU
    pinned: float  # upload from page-locked memory
    pageable: float  # upload from pageable memory
    device_to_host: float  # read-back into page-locked memory
    launch_seconds: float  # host time per kernel launch
    host_copy: float  # copy between host arrays, by one thread
    gather: float  # selection of rows in device memory; the probe does not measure it (see `_gather_bytes_per_second`)
    origin: str  # how the speeds were determined, such as "measured on an NVIDIA H200"


def speeds_of_gpu(gpu: str, probe: Probe | None = None, *, recorded_link: LinkSpeeds | None = None) -> MachineSpeeds:
    """Return the speeds of a GPU, from its probe or else by its name.

    `gpu` is the driver's name for the GPU. If it is empty, use the probe of any GPU. Without a matching probe, an
    unknown GPU gets the speeds of an H200, except for `recorded_link` if the capture has the link.
    """
    if probe is not None and probe.device is not None and (not gpu or probe.device.name == gpu):
        return _probed_speeds(probe)
    name = find_gpu(gpu) or "h200"
    link = recorded_link or LINKS[DEVICES[name].link]
    origin = (
        f"measured on an {MEASURED_ON}"
        if name == "h200"
        else f"from the data sheet of the {gpu} and measurements on an {MEASURED_ON}"
    )
    return MachineSpeeds(
        gpu,
        link.pinned,
        link.pageable,
        link.pinned,
        LAUNCH_SECONDS,
        HOST_COPY_BYTES_PER_SECOND,
        _gather_bytes_per_second(gpu),
        origin,
    )


def gpu_name(view: CaptureView) -> str:
    """Return the driver's name for the GPU of a capture, or an empty string."""
    # NVML's readings (see analyse/gpu_gauges.py). With several GPUs, use the first one.
    gauges = view.capture.facts.get("gauges") or [{}]
    return str(gauges[0].get("name") or "")


def machine_speeds(view: CaptureView) -> MachineSpeeds:
    """Return the speeds of a capture's machine, from the saved probe if it matches."""
    return speeds_of_gpu(gpu_name(view), Probe.cached(), recorded_link=_recorded_link(view))


def _recorded_link(view: CaptureView) -> LinkSpeeds | None:
    """Return the speeds of the PCIe link that NVML reported for the first GPU, or None.

    NVML also reports a PCIe link for a GPU with NVLink-C2C, which is faster. An idle GPU slows its link down, so its
    link is the fastest one that the machine permits.
    """
    for gpu in read_gauges(view)[:1]:
        known = find_gpu(gpu.name)
        is_most = is_idle(gpu)
        generation = gpu.most_link_generation if is_most else gpu.link_generation
        nominal = link_bandwidth(generation, gpu.most_link_width if is_most else gpu.link_width)
        if nominal and not (known and DEVICES[known].link == "c2c"):
            pinned = nominal * (PINNED_SHARE if generation and generation >= 5 else ASSUMED_PINNED_SHARE)
            return LinkSpeeds(pinned, min(LINKS["pcie5"].pageable, pinned / 2))
    return None


def find_gpu(gpu: str) -> str | None:
    """Return the key of DEVICES for a driver name, or None.

    For example, `NVIDIA A100-SXM4-80GB` has the key a100.
    """
    normalized = gpu.lower().replace("geforce ", "").replace("rtx ", "rtx")
    if "laptop" in normalized:  # slower than the desktop GPU of the same name
        return None
    # A name with one more digit belongs to a different GPU: `NVIDIA T400` is not a T4.
    return next((name for name in DEVICES if re.search(rf"{name.replace('-', '[ -]')}(?!\d)", normalized)), None)


def validate_machine(device: str, link: str) -> None:
    """Raise CaptureError for an unknown device or link; an empty name is valid."""
    if device:
        _validate_name(device, DEVICES, "device")
    if link:
        _validate_name(link, LINKS, "link")


def on_other_machine(
    timeline: Timeline, present_gpu: str, *, device: str = "", link: str = ""
) -> tuple[Timeline, Timeline]:
    """Return the timeline on another GPU or link: at best, and at worst.

    `present_gpu` and `device` are keys of DEVICES, and `link` is a key of LINKS. Without `device`, the GPU is
    `present_gpu`. Without `link`, the link is the usual one of the GPU.
    """
    present, other = DEVICES[present_gpu], DEVICES[_validate_name(device, DEVICES, "device") if device else present_gpu]
    before, after = LINKS[present.link], LINKS[_validate_name(link, LINKS, "link") if link else other.link]
    best, worst = _kernel_factors(present, other, min), _kernel_factors(present, other, max)
    return (
        timeline.with_parts(operations=[_scale_operation(each, best, before, after) for each in timeline.operations]),
        timeline.with_parts(operations=[_scale_operation(each, worst, before, after) for each in timeline.operations]),
    )


def _kernel_factors(present: GpuPeaks, other: GpuPeaks, pick: Callable[[list[float]], float]) -> tuple[float, float]:
    """Return the factor on the time of matrix products, and that of other kernels.

    The dtype of a product is unknown, so `pick` (min or max) chooses between the factors of two dtypes.
    """
    return pick([present.bfloat16 / other.bfloat16, present.float32 / other.float32]), present.memory / other.memory


def _scale_operation(
    operation: DeviceOperation, factors: tuple[float, float], before: LinkSpeeds, after: LinkSpeeds
) -> DeviceOperation:
    """Scale a copy by the ratio of the links, or a kernel by its factor.

    Kernels of up to MIN_SCALED_SECONDS do not change, and longer kernels do not become shorter than MIN_SCALED_SECONDS.
    """
    if operation.is_pageable:  # a copy by the CPU; for the preparation of an upload, `engine` is "compute"
        return replace(operation, seconds=operation.seconds * before.pageable / after.pageable)
    if operation.engine != "compute":
        return replace(operation, seconds=operation.seconds * before.pinned / after.pinned)
    if operation.seconds <= MIN_SCALED_SECONDS:
        return operation
    factor = factors[0 if operation.is_matrix_product else 1]
    return replace(operation, seconds=max(MIN_SCALED_SECONDS, operation.seconds * factor))


def _validate_name(name: str, table: dict[str, Any], kind: str) -> str:
    """Return the key of `table` that equals `name` except for case, or raise CaptureError."""
    if name.lower() in table:
        return name.lower()
    raise CaptureError(f"{name!r} is not a known {kind}. Use one of {', '.join(sorted(table))}.")


def _probed_speeds(probe: Probe) -> MachineSpeeds:
    device = probe.device
    assert device is not None
    return MachineSpeeds(
        device.name,
        device.host_to_device_bytes_per_second,
        device.pageable_host_to_device_bytes_per_second,
        device.device_to_host_bytes_per_second,
        device.launch_seconds or LAUNCH_SECONDS,
        probe.host.copy_bytes_per_second(),
        _gather_bytes_per_second(device.name),
        f"probed on {probe.measured_at:%Y-%m-%d}",
    )


def _gather_bytes_per_second(gpu: str) -> float:
    """Return the bytes per second at which a GPU selects rows in its memory.

    This is the value of an H200, scaled by the ratio of the memory rates. A GPU that is not in DEVICES gets the value
    of an H200.
    """
    return GATHER_BYTES_PER_SECOND * DEVICES[find_gpu(gpu) or "h200"].memory / DEVICES["h200"].memory

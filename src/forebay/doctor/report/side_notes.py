"""Sentences about memory, GPUs and other programs, which follow the diagnosis in reports."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.gpu_gauges import Gauges, gauge_remarks, leaves_gpu_unused, read_gauges
from forebay.doctor.analyse.memory import DataCopies, MemoryLevel, memory_usage
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_count, format_percent

__all__ = [
    "cores_of_other_programs",
    "describe_data_copies",
    "describe_gpu",
    "describe_gpus",
    "describe_memory",
    "describe_other_programs",
]

# `describe_memory` omits the copies of an array, and the graph constants, if they occupy fewer bytes in total than
# this. The HTML page does not omit them.
MIN_NOTED_NBYTES = 1 << 20
MIN_FOREIGN_SHARE = 0.25  # of the cores; other programs that use fewer change step times little


def describe_memory(view: CaptureView) -> str:
    """Describe memory use in one sentence, without its full stop; empty if it is unknown."""
    usage = memory_usage(view)
    peaks = ", ".join(_describe_peak(level) for level in usage.levels if level.peak_nbytes)
    parts = [f"peak use: {peaks}"] if peaks else []
    parts += [
        describe_data_copies(largest) for largest in usage.data_copies[:1] if largest.held_nbytes >= MIN_NOTED_NBYTES
    ]
    constant_nbytes = sum(constants.total_nbytes for constants in usage.graph_constants)
    if constant_nbytes >= MIN_NOTED_NBYTES:
        parts.append(f"{format_nbytes(constant_nbytes)} are constants in graphs")
    return "; ".join(parts)


def describe_data_copies(data: DataCopies) -> str:
    """State where the copies of the largest array are stored.

    If uploads repeat, also compare the bytes of all uploads with the bytes of all arrays in `data`.
    """
    places = ", ".join(_format_place(name, times) for name, times in Counter(data.places).items())
    stored = f"an array of {format_nbytes(data.nbytes)} occupies {format_nbytes(data.held_nbytes)} ({places})"
    if data.copied_nbytes <= data.different_nbytes:
        return stored
    copied, distinct = format_nbytes(data.copied_nbytes), format_nbytes(data.different_nbytes)
    return f"{stored}; the script uploaded {copied} in total, but its arrays contain only {distinct}"


def _format_place(place: str, times: int) -> str:
    """Format the name of a memory, and how many copies it contains."""
    return place if times == 1 else f"{place} twice" if times == 2 else f"{place} {times} times"


def describe_other_programs(view: CaptureView) -> str:
    """State how many cores other programs used, without a full stop.

    The result is "" if these are few cores, or if their number is unknown. In captures without `worker_cores`, it is
    unknown for a script with worker processes, because these count as other programs.
    """
    has_workers = any(workers for site in view.sites_of(EventKind.INPUT) for workers in site.values("workers"))
    facts = view.capture.facts
    used = cores_of_other_programs(facts, view.capture.machine)
    if not used or (has_workers and facts.get("worker_cores") is None):
        return ""
    return f"other programs used {used} while steps were timed; without them, step times and gains may be different"


def cores_of_other_programs(facts: dict[str, Any], machine: dict[str, Any]) -> str:
    """Return how many cores other programs used, such as "1.5 of 2 cores".

    The result is "" if these are few cores, or if their number is unknown.
    """
    foreign, workers, cores = facts.get("foreign_cores"), facts.get("worker_cores"), machine.get("cores") or 1
    if not isinstance(foreign, int | float) or not isinstance(cores, int | float):
        return ""
    others = foreign - (workers if isinstance(workers, int | float) else 0.0)
    if not math.isfinite(others):
        return ""
    return f"{others:.1f} of {format_count(int(cores), 'core')}" if others >= MIN_FOREIGN_SHARE * cores else ""


def describe_gpus(view: CaptureView) -> list[str]:
    """Describe each GPU in one sentence, without its full stop."""
    unused = '; the script does not use it; to try it, move the model and each batch there with .to("cuda")'
    return [describe_gpu(gauges) + (unused if leaves_gpu_unused(view) else "") for gauges in read_gauges(view)]


def describe_gpu(gauges: Gauges) -> str:
    return f"{gauges.name}: {'; '.join([', '.join(_format_readings(gauges)), *gauge_remarks(gauges)])}"


def _format_readings(gauges: Gauges) -> Iterator[str]:
    yield "utilization unknown" if gauges.busy is None else f"{format_percent(gauges.busy)} busy"
    if gauges.clock_mhz is not None:
        highest = f" of {gauges.most_clock_mhz:,}" if gauges.most_clock_mhz else ""
        yield f"{gauges.clock_mhz:,.0f}{highest} MHz"
    if gauges.link_generation and gauges.link_width:
        yield f"PCIe {gauges.link_generation} x{gauges.link_width}"
    if gauges.received_bytes_per_second is not None and gauges.sent_bytes_per_second is not None:
        received, sent = gauges.received_bytes_per_second / 1e9, gauges.sent_bytes_per_second / 1e9
        yield f"{received:.1f} GB/s received and {sent:.1f} GB/s sent"
    if gauges.watts is not None:
        yield f"{gauges.watts:.0f} of {gauges.most_watts:.0f} W" if gauges.most_watts else f"{gauges.watts:.0f} W"
    yield format_count(gauges.samples, "reading")


def _describe_peak(level: MemoryLevel) -> str:
    """Describe the peak use of one memory, and reserved memory above twice the peak.

    Name the framework unless it is PyTorch. Page-locked memory has no total, because it is a part of host memory.
    """
    place = level.place if level.framework in (None, "torch") else f"{level.place} of {level.framework}"
    total = f" of {format_nbytes(level.total_nbytes)}" if level.total_nbytes and level.place != "page-locked" else ""
    reserved_nbytes = level.reserved_nbytes or 0
    reserved = f" ({format_nbytes(reserved_nbytes)} reserved)" if reserved_nbytes > 2 * (level.peak_nbytes or 0) else ""
    return f"{place} {format_nbytes(level.peak_nbytes or 0)}{total}{reserved}"

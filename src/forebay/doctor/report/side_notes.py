"""What stands beside a verdict, in sentences: how full memory was, where data lies twice, what GPUs say of it."""

from collections import Counter
from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.gpu_gauges import Gauges, gauges_of, remarks_on
from forebay.doctor.analyse.memory import Level, Spread, memory_of
from forebay.doctor.model.formatting import counted, percent

__all__ = ["gauged", "gpus", "memory", "spread"]

SMALLEST_SPREAD = 1 << 20  # bytes that copies of one piece take together: less is not worth a line


def memory(case: Case) -> str:
    """One sentence; nothing where nothing was read."""
    found = memory_of(case)
    peaks = ", ".join(_peak(level) for level in found.levels if level.peak_nbytes)
    parts = [f"{peaks} at the peak"] if peaks else []
    parts += [spread(most) for most in found.spreads[:1] if most.held_nbytes >= SMALLEST_SPREAD]
    embedded = sum(constants.total_nbytes for constants in found.embedded)
    if embedded >= SMALLEST_SPREAD:
        parts.append(f"{format_nbytes(embedded)} are constants of graphs")
    return "; ".join(parts)


def spread(data: Spread) -> str:
    """Where a piece of data lies, and what was copied for all of it."""
    places = ", ".join(_often(name, times) for name, times in Counter(data.places).items())
    one = f"{format_nbytes(data.nbytes)} of data take {format_nbytes(data.held_nbytes)} ({places})"
    if data.copied_nbytes <= data.different_nbytes:
        return one
    whole = "of it" if data.pieces == 1 else "of such data"
    return f"{one}; {format_nbytes(data.copied_nbytes)} were copied for {format_nbytes(data.different_nbytes)} {whole}"


def _often(place: str, times: int) -> str:
    return place if times == 1 else f"{place} twice" if times == 2 else f"{place} {times} times"


def gpus(case: Case) -> list[str]:
    """A sentence for each GPU."""
    return [gauged(gauges) for gauges in gauges_of(case)]


def gauged(gauges: Gauges) -> str:
    return f"{gauges.name}: {'; '.join([', '.join(_readings(gauges)), *remarks_on(gauges)])}"


def _readings(gauges: Gauges) -> Iterator[str]:
    yield "not known how busy" if gauges.busy is None else f"{percent(gauges.busy)} busy"
    if gauges.clock_mhz is not None:
        most = f" of {gauges.most_clock_mhz:,}" if gauges.most_clock_mhz else ""
        yield f"{gauges.clock_mhz:,.0f}{most} MHz"
    if gauges.link_generation and gauges.link_width:
        yield f"PCIe {gauges.link_generation} x{gauges.link_width}"
    if gauges.received_bytes_per_second is not None and gauges.sent_bytes_per_second is not None:
        received, sent = gauges.received_bytes_per_second / 1e9, gauges.sent_bytes_per_second / 1e9
        yield f"{received:.1f} GB/s in and {sent:.1f} out"
    if gauges.watts is not None:
        yield f"{gauges.watts:.0f} of {gauges.most_watts:.0f} W" if gauges.most_watts else f"{gauges.watts:.0f} W"
    yield counted(gauges.samples, "sample")


def _peak(level: Level) -> str:
    place = level.place if level.framework in (None, "torch") else f"{level.place} of {level.framework}"
    total = f" of {format_nbytes(level.total_nbytes)}" if level.total_nbytes and level.place != "page-locked" else ""
    more = level.reserved_nbytes or 0
    reserved = f" ({format_nbytes(more)} reserved)" if more > 2 * (level.peak_nbytes or 0) else ""
    return f"{place} {format_nbytes(level.peak_nbytes or 0)}{total}{reserved}"

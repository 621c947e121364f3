"""How rows cross to a device: resident, pull or stage, and how much at a time. Pure: sizes in, choices out.

    resident   it fits: uploaded once, every batch after that is a gather on the device
    pull       rows lie whole in memory that may be page-locked: the device fetches them itself
    stage      everything else: threads gather into page-locked slots, one copy a slot

Inside a pull, each leaf goes the way that suits its rows: large ones by DMA, which leaves the GPU's processors alone
but takes the host's; small ones by a kernel, a window of coming batches at a time, in the order of their addresses.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from forebay.core.decision import Reason
from forebay.core.spec import DEVICE_ALIGNMENT, ArraySpec, Layout, align, format_nbytes
from forebay.errors import BudgetError

__all__ = ["DeviceDemand", "Speeds", "Transport", "choose_transport"]

DMA_ROW_NBYTES = 48 << 10  # from here on a DMA a row is as fast as one for all: 54 of 55 GB/s on an H200
FEW_CORES = 1  # issuing DMAs would take most of it from the training loop: 0.9 us a row, on a thread beside it
WINDOW_NBYTES = 128 << 20  # fetched together, short rows in the order of their addresses: more wins little
RESIDENT_NBYTES = 1 << 30  # gathered on the device in half a millisecond: Python takes some of that to ask for it
FILLING = 6  # groups being fetched or ready, beside those in use: the host may be late by as many without being noticed
FEWEST_FILLING = 3  # the same where memory is short
FILLING_RESIDENT = 2  # the same where rows are on the device: a group is there at once
THREADS = 2
RESIDENT_SHARE = 0.5  # of what the framework can give: the rest is the model's
GROUP_BATCHES = 320  # as on the host: all of a group are handed off at once
ROW_NUMBER_NBYTES = 12  # beside each row of a slot: its number, and its place in the order of addresses
OVERHEAD_NBYTES = 20 << 10
EXTENT_NBYTES = 24  # a line of a table
WORTH_KEEPING = 0.25  # of the rows: for fewer, the memory is better left to the model
SLOTS_SHARE = 0.125  # of what the framework can give, up to
MOST_SLOTS_NBYTES = 2 << 30  # of it, or up to
SLOTS_SHARE_OF_MUCH = 0.03125  # of it, where that is more
FEWEST_GROUPS = 8  # a pass over the rows is cut into at least so many, or nothing overlaps
FEWEST_GROUPS_RESIDENT = 4  # where each is there at once


class Speeds(Protocol):
    """How fast rows of a size are fetched, measured."""

    def bytes_per_second(self, row_nbytes: int) -> float: ...


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """What a feed asks of a device."""

    name: str
    available_nbytes: int  # what the framework can give
    budget_nbytes: int | None  # device_bytes, where it was given
    resident: str
    rows: int  # of the source
    extents: tuple[int, ...]  # how many each leaf lies in; none where rows cannot be fetched
    in_use: int  # slots that a consumer sees, or its queued work does
    batches: int | None = None  # of one pass over the rows
    why_staged: str = ""  # why they cannot
    speeds: Speeds | None = None  # where this machine was measured


@dataclass(frozen=True, slots=True)
class Transport:
    """How a feed's rows cross."""

    ways: tuple[str, ...]  # for each leaf: "dma" or "kernel"
    kept_rows: int  # of the source, on the device: all, some, or none
    group_batches: int
    slots: int
    threads: int
    slot_nbytes: int
    kept_nbytes: int
    in_use: int  # slots beside those
    reasons: tuple[Reason, ...]

    @property
    def device_nbytes(self) -> int:
        return (self.slots + self.in_use) * self.slot_nbytes + self.kept_nbytes


def choose_transport(
    device: DeviceDemand,
    specs: tuple[ArraySpec, ...],
    *,
    batch_rows: int,
    cores: int,
    most: int = GROUP_BATCHES,
    held: tuple[ArraySpec, ...] | None = None,
) -> Transport | None:
    """The way for rows that may be fetched; None where they must be staged. `held`: as the framework has them then."""
    if not device.extents:
        return None
    if device.budget_nbytes is not None:
        device = replace(device, budget_nbytes=min(device.budget_nbytes, device.available_nbytes))
    row_nbytes = sum(spec.nbytes for spec in specs)
    ways = tuple("dma" if spec.nbytes >= DMA_ROW_NBYTES and cores > FEW_CORES else "kernel" for spec in specs)
    held = specs if held is None else held
    sizes = partial(_sizes, device, _slot_nbytes(device, specs, held, batch_rows), row_nbytes)
    for wanted, filling, fewest in (
        (RESIDENT_NBYTES, FILLING_RESIDENT, FEWEST_GROUPS_RESIDENT),
        (WINDOW_NBYTES, FILLING, FEWEST_GROUPS),
    ):
        part = most if device.batches is None else min(most, device.batches // fewest)
        filling, group, slot_nbytes = sizes(wanted, filling=filling, most=part)
        kept_rows, why_kept = _kept(device, row_nbytes, slots_nbytes=(filling + device.in_use) * slot_nbytes)
        resident = kept_rows == device.rows
        if resident:
            break
    name = "resident" if resident else "part resident" if kept_rows else "pull"
    reasons = [Reason("transport", name, why_kept)]
    if not resident:
        reasons.append(Reason("rows", ", ".join(dict.fromkeys(ways)), _why_ways(specs, ways)))
    together = f"fetched together: {format_nbytes(slot_nbytes)}"
    reasons.append(Reason("group", f"{group} batch{'es' if group > 1 else ''}", together))
    if device.speeds is not None and row_nbytes and not resident:
        reasons.append(_expected(device.speeds, specs, held, kept_rows / device.rows))
    kept_nbytes = kept_rows * row_nbytes
    return Transport(ways, kept_rows, group, filling, THREADS, slot_nbytes, kept_nbytes, device.in_use, tuple(reasons))


def _kept(device: DeviceDemand, row_nbytes: int, *, slots_nbytes: int) -> tuple[int, str]:
    """How many rows stay on the device, and why."""
    total, free = device.rows * row_nbytes, format_nbytes(device.available_nbytes)
    room = int(device.available_nbytes * RESIDENT_SHARE)
    if device.budget_nbytes is not None:
        room = device.budget_nbytes - slots_nbytes
    room = min(room, device.available_nbytes - slots_nbytes)
    told = f"{format_nbytes(total)} of data, {free} to be had on {device.name}"
    if device.resident == "always":
        return device.rows, f"as asked: {told}"
    if device.resident == "never":
        return 0, f"the device fetches rows itself; resident='never' was asked ({told})"
    if total <= room:
        return device.rows, f"uploaded once while the first epoch runs: {told}"
    kept = room // max(1, row_nbytes)
    if kept < device.rows * WORTH_KEEPING:
        return 0, f"the device fetches rows itself: {told}"
    share = f"{kept / device.rows:.0%} of {told}"
    return kept, f"{share} stay there; the device fetches the others itself"


def _expected(speeds: Speeds, specs: tuple[ArraySpec, ...], held: tuple[ArraySpec, ...], kept: float) -> Reason:
    """What the probe's figures promise for rows like these, in bytes as the framework gets them."""
    nbytes = sum(spec.nbytes for spec in held)
    seconds = sum(spec.nbytes / speeds.bytes_per_second(spec.nbytes) for spec in specs if spec.nbytes) * (1 - kept)
    return Reason("speed", f"{nbytes / seconds / 1e9:.0f} GB/s", "expected, by what `forebay probe` measured here")


def _sizes(
    device: DeviceDemand, slot_nbytes: Callable[[int], int], row_nbytes: int, wanted: int, *, filling: int, most: int
) -> tuple[int, int, int]:
    """How many groups are fetched or ready, how many batches each has, and the bytes a slot takes for them."""
    batch_nbytes = slot_nbytes(1)
    staying = device.rows * row_nbytes if device.resident == "always" else 0
    room = _slots_room(device, (FEWEST_FILLING + device.in_use) * batch_nbytes, staying)
    filling = min(filling, room // batch_nbytes - device.in_use)
    fit = room // (filling + device.in_use) // batch_nbytes
    group = max(1, min(wanted // batch_nbytes, most, fit))
    return filling, group, slot_nbytes(group)


def _slot_nbytes(
    device: DeviceDemand, specs: tuple[ArraySpec, ...], held: tuple[ArraySpec, ...], batch_rows: int
) -> Callable[[int], int]:
    """For so many batches: rows, as they arrive where they are narrowed then, and what is needed to fetch them."""
    arriving = [spec for spec, narrow in zip(specs, held, strict=True) if spec.dtype != narrow.dtype]
    # Each extent may be cut into three, and rows that have been uploaded are one more.
    tables = sum(align((3 * count + 1) * EXTENT_NBYTES, DEVICE_ALIGNMENT) for count in device.extents)

    def nbytes(batches: int) -> int:
        layout = Layout.of((*held, *arriving), batch_rows=batch_rows, batches=batches, alignment=DEVICE_ALIGNMENT)
        return layout.nbytes + batches * batch_rows * ROW_NUMBER_NBYTES + tables + OVERHEAD_NBYTES

    return nbytes


def _slots_room(device: DeviceDemand, least: int, staying: int) -> int:
    """What slots may take of the device, beside rows that must stay there: a part of it, or of the budget."""
    most = device.available_nbytes if device.budget_nbytes is None else device.budget_nbytes
    needed = least + staying
    if needed > most and staying:
        raise BudgetError(
            f"resident='always' needs {format_nbytes(needed)} on {device.name} with its slots, and "
            f"{format_nbytes(most)} may be used. Use resident='auto', which streams what does not fit."
        )
    if needed > device.available_nbytes:
        raise BudgetError(
            f"slots for these batches need {format_nbytes(needed)} on {device.name}, which has "
            f"{format_nbytes(device.available_nbytes)} to give. Make batches smaller, or free memory there."
        )
    if needed > most:
        raise BudgetError(
            f"device_bytes={format_nbytes(most)} is too small: slots for these batches need "
            f"{format_nbytes(needed)}. Pass device_bytes='{-(-needed // 2**20)}MiB', or make batches smaller."
        )
    if device.budget_nbytes is None:
        share = min(int(most * SLOTS_SHARE), max(MOST_SLOTS_NBYTES, int(most * SLOTS_SHARE_OF_MUCH)))
    else:
        share = most if device.resident == "never" else most // 4
    return max(least, min(share, most - staying))


def _why_ways(specs: tuple[ArraySpec, ...], ways: tuple[str, ...]) -> str:
    told = {
        "dma": "a DMA a row, which leaves the GPU's processors alone",
        "kernel": "a kernel of few blocks, in the order of addresses where rows are short",
        "spared": "a kernel of few blocks: this process has one CPU, which a DMA a row would keep busy",
    }
    found: dict[str, list[str]] = {}
    for spec, way in zip(specs, ways, strict=True):
        spared = way == "kernel" and spec.nbytes >= DMA_ROW_NBYTES
        found.setdefault("spared" if spared else way, []).append(format_nbytes(spec.nbytes))
    return "; ".join(f"rows of {' and '.join(sizes)}: {told[way]}" for way, sizes in found.items())

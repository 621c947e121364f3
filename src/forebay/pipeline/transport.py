"""How rows reach a device: resident, pull or stage, and how many at a time.

Pure: sizes in, decisions out.

    resident   the rows fit on the device: they are uploaded once, then the device gathers every batch
    pull       the rows are in memory that can be page-locked: the device reads them from there
    stage      all other rows: worker threads gather them into page-locked slots, and one copy moves a slot

The planner chooses a pull method for each leaf. DMA reads large rows: it leaves the GPU's processors free, but the host
must issue one copy per row. A kernel reads small rows of a whole group in the order of their addresses.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from forebay.core.decision import Decision
from forebay.core.spec import DEVICE_ALIGNMENT, ArraySpec, Layout, align, format_nbytes
from forebay.errors import BudgetError

__all__ = ["MAX_GROUP_BATCHES", "DeviceInput", "PullSpeeds", "Transport", "choose_transport"]

DMA_ROW_NBYTES = 48 << 10  # bytes; from this size one DMA per row reaches 54 of 55 GB/s on an H200
MIN_DMA_CORES = 2  # with one core, issuing DMAs (0.9 us per row) would take most of it from the training loop
PULL_THREADS = 2
MAX_GROUP_BATCHES = 320  # all batches of a group are handed off at once; the same limit as on the host

PULL_GROUP_NBYTES = 128 << 20  # bytes; a kernel reads a group in address order, and larger groups are hardly faster
PULL_SLOTS = 6  # groups in transfer or ready: the host may be late by that many groups before the consumer waits
MIN_SLOTS = 3  # slots to use if device memory is short
MIN_GROUPS = 8  # groups per pass; with fewer, transfers do not overlap with the work of the consumer

RESIDENT_GROUP_NBYTES = 1 << 30  # bytes; the device gathers 1 GiB in 0.5 ms, and Python needs part of that to enqueue
RESIDENT_SLOTS = 2  # a group of resident rows is ready at once
MIN_RESIDENT_GROUPS = 4

MAX_RESIDENT_SHARE = 0.5  # of the available device memory; the model needs the rest
MIN_RESIDENT_SHARE = 0.25  # of the rows; if fewer fit, leave the memory to the model

SLOTS_SHARE = 0.125  # of the device memory, on a small device
LARGE_DEVICE_SLOTS_NBYTES = 2 << 30  # bytes for slots on a larger device
LARGE_DEVICE_SLOTS_SHARE = 0.03125  # of the device memory, if that is more than LARGE_DEVICE_SLOTS_NBYTES

ROW_NUMBER_NBYTES = 12  # bytes per row of a slot: its number and its position in address order
SLOT_OVERHEAD_NBYTES = 20 << 10
EXTENT_NBYTES = 24  # bytes of one entry in the table of extents


class PullSpeeds(Protocol):
    """Measured speeds at which the device pulls rows of a given size."""

    def bytes_per_second(self, row_nbytes: int) -> float: ...


@dataclass(frozen=True, slots=True)
class DeviceInput:
    """The device and the source, in the terms that the planner needs."""

    name: str
    available_nbytes: int  # memory that the framework can still allocate
    budget_nbytes: int | None  # device_bytes, if the user passed it
    resident: str
    rows: int  # of the source
    extents: tuple[int, ...]  # number of memory extents per leaf; empty if the device cannot pull the rows
    slots_in_use: int  # slots that the consumer or its queued work still reads
    batches: int | None = None  # of one pass over the rows
    why_staged: str = ""  # why the device cannot pull the rows
    speeds: PullSpeeds | None = None  # None if this machine was not measured


@dataclass(frozen=True, slots=True)
class Transport:
    """How the device pulls the rows of a feed."""

    pull_methods: tuple[str, ...]  # per leaf: "dma" or "kernel"
    resident_rows: int  # of the source: all, some or none
    group_batches: int
    slots: int
    threads: int
    slot_nbytes: int
    resident_nbytes: int
    slots_in_use: int  # in addition to `slots`
    decisions: tuple[Decision, ...]

    @property
    def device_nbytes(self) -> int:
        return (self.slots + self.slots_in_use) * self.slot_nbytes + self.resident_nbytes


def choose_transport(
    device: DeviceInput,
    specs: tuple[ArraySpec, ...],
    *,
    batch_rows: int,
    cores: int,
    max_group_batches: int = MAX_GROUP_BATCHES,
    slot_specs: tuple[ArraySpec, ...] | None = None,
) -> Transport | None:
    """Return how the device pulls rows, or None if they must be staged.

    `specs` describe rows in the source, `slot_specs` rows in a slot: the framework may narrow them.
    """
    if not device.extents:
        return None
    if device.budget_nbytes is not None:
        device = replace(device, budget_nbytes=min(device.budget_nbytes, device.available_nbytes))
    row_nbytes = sum(spec.nbytes for spec in specs)
    methods = tuple("dma" if spec.nbytes >= DMA_ROW_NBYTES and cores >= MIN_DMA_CORES else "kernel" for spec in specs)
    slot_specs = specs if slot_specs is None else slot_specs
    sizes = partial(_sizes, device, _slot_nbytes(device, specs, slot_specs, batch_rows), row_nbytes)
    for group_nbytes, slots, min_groups in (
        (RESIDENT_GROUP_NBYTES, RESIDENT_SLOTS, MIN_RESIDENT_GROUPS),
        (PULL_GROUP_NBYTES, PULL_SLOTS, MIN_GROUPS),
    ):
        batches_limit = (
            max_group_batches if device.batches is None else min(max_group_batches, device.batches // min_groups)
        )
        slots, group, slot_nbytes = sizes(group_nbytes, slots=slots, max_group_batches=batches_limit)
        resident_rows, why_resident = _resident_rows(
            device, row_nbytes, slots_nbytes=(slots + device.slots_in_use) * slot_nbytes
        )
        all_resident = resident_rows == device.rows
        if all_resident:
            break
    name = "resident" if all_resident else "part resident" if resident_rows else "pull"
    decisions = [Decision("transport", name, why_resident)]
    if not all_resident:
        decisions.append(Decision("rows", ", ".join(dict.fromkeys(methods)), _why_methods(specs, methods)))
    together = f"pulled together: {format_nbytes(slot_nbytes)}"
    decisions.append(Decision("group", f"{group} batch{'es' if group > 1 else ''}", together))
    if device.speeds is not None and row_nbytes and not all_resident:
        decisions.append(_expected_speed(device.speeds, specs, slot_specs, resident_rows / device.rows))
    return Transport(
        pull_methods=methods,
        resident_rows=resident_rows,
        group_batches=group,
        slots=slots,
        threads=PULL_THREADS,
        slot_nbytes=slot_nbytes,
        resident_nbytes=resident_rows * row_nbytes,
        slots_in_use=device.slots_in_use,
        decisions=tuple(decisions),
    )


def _slot_nbytes(
    device: DeviceInput, specs: tuple[ArraySpec, ...], slot_specs: tuple[ArraySpec, ...], batch_rows: int
) -> Callable[[int], int]:
    """Return a function from the number of batches to the bytes of a slot.

    A slot holds the rows, a second copy of leaves that are narrowed on arrival, and the tables for the kernels.
    """
    arriving = [spec for spec, narrow in zip(specs, slot_specs, strict=True) if spec.dtype != narrow.dtype]
    # Page-locking may split an extent into three, and uploaded rows are one more.
    tables = sum(align((3 * count + 1) * EXTENT_NBYTES, DEVICE_ALIGNMENT) for count in device.extents)

    def nbytes(batches: int) -> int:
        layout = Layout.of((*slot_specs, *arriving), batch_rows=batch_rows, batches=batches, alignment=DEVICE_ALIGNMENT)
        return layout.nbytes + batches * batch_rows * ROW_NUMBER_NBYTES + tables + SLOT_OVERHEAD_NBYTES

    return nbytes


def _sizes(
    device: DeviceInput,
    slot_nbytes: Callable[[int], int],
    row_nbytes: int,
    group_nbytes: int,
    *,
    slots: int,
    max_group_batches: int,
) -> tuple[int, int, int]:
    """Return the number of slots, the batches per group, and the bytes per slot."""
    batch_nbytes = slot_nbytes(1)
    resident_nbytes = device.rows * row_nbytes if device.resident == "always" else 0
    room = _slots_room(device, (MIN_SLOTS + device.slots_in_use) * batch_nbytes, resident_nbytes)
    slots = min(slots, room // batch_nbytes - device.slots_in_use)
    fit = room // (slots + device.slots_in_use) // batch_nbytes
    group = max(1, min(group_nbytes // batch_nbytes, max_group_batches, fit))
    return slots, group, slot_nbytes(group)


def _slots_room(device: DeviceInput, min_nbytes: int, resident_nbytes: int) -> int:
    """Return the bytes for slots: a share of the device or of the budget."""
    limit = device.available_nbytes if device.budget_nbytes is None else device.budget_nbytes
    needed = min_nbytes + resident_nbytes
    if needed > limit and resident_nbytes:
        raise BudgetError(
            f"resident='always' needs {format_nbytes(needed)} on {device.name}, slots included, but only "
            f"{format_nbytes(limit)} may be used. Use resident='auto', which streams the rows that do not fit."
        )
    if needed > device.available_nbytes:
        raise BudgetError(
            f"slots for these batches need {format_nbytes(needed)} on {device.name}, but only "
            f"{format_nbytes(device.available_nbytes)} are available. Make batches smaller, or free memory there."
        )
    if needed > limit:
        raise BudgetError(
            f"device_bytes={format_nbytes(limit)} is too small: slots for these batches need "
            f"{format_nbytes(needed)}. Pass device_bytes='{-(-needed // 2**20)}MiB', or make batches smaller."
        )
    if device.budget_nbytes is None:
        share = min(int(limit * SLOTS_SHARE), max(LARGE_DEVICE_SLOTS_NBYTES, int(limit * LARGE_DEVICE_SLOTS_SHARE)))
    else:
        share = limit if device.resident == "never" else limit // 4
    return max(min_nbytes, min(share, limit - resident_nbytes))


def _resident_rows(device: DeviceInput, row_nbytes: int, *, slots_nbytes: int) -> tuple[int, str]:
    """Return how many rows stay on the device, and why."""
    total = device.rows * row_nbytes
    room = int(device.available_nbytes * MAX_RESIDENT_SHARE)
    if device.budget_nbytes is not None:
        room = device.budget_nbytes - slots_nbytes
    room = min(room, device.available_nbytes - slots_nbytes)
    facts = f"{format_nbytes(total)} of data, {format_nbytes(device.available_nbytes)} available on {device.name}"
    if device.resident == "always":
        return device.rows, f"as requested: {facts}"
    if device.resident == "never":
        return 0, f"the device reads rows from host memory, because resident='never' was requested ({facts})"
    if total <= room:
        return device.rows, f"uploaded once during the first epoch: {facts}"
    rows = room // max(1, row_nbytes)
    if rows < device.rows * MIN_RESIDENT_SHARE:
        return 0, f"the device reads rows from host memory: {facts}"
    return rows, f"{rows / device.rows:.0%} of the rows stay on the device, it reads the others from the host: {facts}"


def _expected_speed(
    speeds: PullSpeeds, specs: tuple[ArraySpec, ...], slot_specs: tuple[ArraySpec, ...], resident_share: float
) -> Decision:
    """Predict the speed from the measured ceilings, in bytes as the framework receives them."""
    nbytes = sum(spec.nbytes for spec in slot_specs)
    pulled = sum(spec.nbytes / speeds.bytes_per_second(spec.nbytes) for spec in specs if spec.nbytes)
    seconds = pulled * (1 - resident_share)
    return Decision("speed", f"{nbytes / seconds / 1e9:.0f} GB/s", "expected from the ceilings of `forebay probe`")


def _why_methods(specs: tuple[ArraySpec, ...], methods: tuple[str, ...]) -> str:
    reasons = {
        "dma": "a DMA per row, which leaves the GPU's processors free",
        "kernel": "a kernel of few blocks, in address order if rows are short",
        "one core": "a kernel of few blocks, because this process has one CPU and a DMA per row would keep it busy",
    }
    sizes_of: dict[str, list[str]] = {}
    for spec, method in zip(specs, methods, strict=True):
        avoids_dma = method == "kernel" and spec.nbytes >= DMA_ROW_NBYTES
        sizes_of.setdefault("one core" if avoids_dma else method, []).append(format_nbytes(spec.nbytes))
    return "; ".join(f"rows of {' and '.join(sizes)}: {reasons[method]}" for method, sizes in sizes_of.items())

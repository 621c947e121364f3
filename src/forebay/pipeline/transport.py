"""The transport of rows to a device: resident, part resident, pull or stage.

    resident        all rows fit on the device: Forebay uploads them once, then the device gathers every batch
    part resident   only a part of the rows fits on the device: the device pulls the other rows
    pull            the rows are in host memory that can be page-locked: the device reads them from this memory
    stage           in all other cases: worker threads gather rows into page-locked slots; one copy uploads each slot

The device pulls each leaf by DMA or by a kernel. A DMA per row leaves the GPU's processors free but needs CPU time, so
Forebay uses it for large rows if the process has two or more cores. A kernel reads short rows in address order.

The functions are pure: they compute decisions from sizes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from forebay.core.decision import Decision
from forebay.core.spec import DEVICE_ALIGNMENT, ArraySpec, Layout, align, format_nbytes
from forebay.errors import BudgetError

__all__ = ["MAX_GROUP_BATCHES", "DeviceInput", "PullSpeeds", "Transport", "choose_transport"]

# Bytes of the smallest row that the device pulls by DMA. On an H200, DMAs read rows of 48 KiB at 54 GB/s (the link has
# 55 GB/s), and a kernel at 47 GB/s. But the thread that queues so many DMAs makes steps that Python limits 5 to 9 %
# longer; with a kernel, they are 2 % longer (docs/measurements.md#inside-trainers).
DMA_ROW_NBYTES = 64 << 10
MIN_DMA_CORES = 2  # one DMA takes 0.9 us of CPU time; on a single core this would slow the training loop
PULL_THREADS = 2  # worker threads; while the device sorts the rows for one, it can pull the rows for the other
MAX_GROUP_BATCHES = 320  # the same limit as on the host, because the feed hands off all batches of a group at once

PULL_GROUP_NBYTES = 128 << 20  # bytes of a group, whose rows a kernel sorts by address; larger groups are hardly faster
PULL_SLOTS = 6  # slots being filled or ready; if the host pauses, the consumer can use all of them before it waits
# Slots of one batch that must fit in device memory in addition to those of the consumer. Otherwise `choose_transport`
# raises BudgetError.
MIN_SLOTS = 3
# A pass with enough batches has at least this many groups. With fewer, transfers do not overlap with the work of the
# consumer.
MIN_GROUPS = 8

# Bytes of a group of resident rows. The device gathers them in 0.5 ms, which is longer than Python needs to queue the
# work.
RESIDENT_GROUP_NBYTES = 1 << 30
RESIDENT_SLOTS = 2  # slots being filled or ready; two are enough, because the device gathers resident rows so fast
MIN_RESIDENT_GROUPS = 4  # like MIN_GROUPS, for resident rows; fewer are enough, because the device gathers so fast

MAX_RESIDENT_SHARE = 0.5  # of the available device memory, if the user sets no budget; the other half is for the model
MIN_RESIDENT_SHARE = 0.25  # of the rows; if fewer rows fit, no row is resident and the model gets the memory

# Device memory for slots, if the user sets no budget: SLOTS_SHARE of the available memory, but at most
# LARGE_DEVICE_SLOTS_NBYTES or LARGE_DEVICE_SLOTS_SHARE of the available memory, whichever is more.
SLOTS_SHARE = 0.125
LARGE_DEVICE_SLOTS_NBYTES = 2 << 30
LARGE_DEVICE_SLOTS_SHARE = 0.03125
BUDGET_SLOTS_SHARE = 0.25  # share of `device_bytes` for slots, if rows may be resident

ROW_NUMBER_NBYTES = 12  # bytes per row of a slot: the row number (8) and its position in address order (4)
# Bytes per slot for padding, the counters of the kernel that sorts rows, and the program that computes row numbers.
SLOT_OVERHEAD_NBYTES = 30 << 10
MAX_ORDER_SHARE = 0.125  # of the device memory or its budget, for the tables of an order
EXTENT_NBYTES = 24  # bytes of one memory extent in the table that the kernels read


class PullSpeeds(Protocol):
    """Measured speeds at which the device pulls rows of a given size."""

    def bytes_per_second(self, row_nbytes: int) -> float: ...


@dataclass(frozen=True, slots=True)
class DeviceInput:
    """What the planner reads about the device, and about the source of its rows."""

    name: str  # such as "cuda:0"
    available_nbytes: int  # device memory that the framework can still allocate
    budget_nbytes: int | None  # the option device_bytes; None if the user did not pass it
    resident: str  # the option: "auto", "always" or "never"
    rows: int  # of the source
    extents: tuple[int, ...]  # number of memory extents of each leaf; empty if the device cannot pull the rows
    consumer_slots: int  # slots that the consumer or its queued work still reads
    batches: int | None = None  # per pass; None if unknown
    overlap_nbytes: int = 0  # bytes that a row shares with the next row, as windows do; the sum over all leaves
    order_nbytes: int | None = None  # bytes of the tables of the order; None if a device cannot compute row numbers
    why_staged: str = ""  # why the device cannot pull the rows; used only if `extents` is empty
    speeds: PullSpeeds | None = None  # None if `forebay probe` has not measured this machine


@dataclass(frozen=True, slots=True)
class Transport:
    """How the device pulls the rows of a feed. All bytes are device memory."""

    pull_methods: tuple[str, ...]  # for each leaf: "dma" or "kernel"
    resident_rows: int  # number of rows, from row 0 on, that stay on the device
    group_batches: int  # batches per group
    slots: int  # being filled or ready
    threads: int
    slot_nbytes: int
    resident_nbytes: int
    consumer_slots: int  # slots that the consumer uses, in addition to `slots`
    decisions: tuple[Decision, ...]
    order_nbytes: int | None = None  # tables of the order; None if the host computes the row numbers

    @property
    def computes_row_numbers(self) -> bool:
        """Whether the device computes the row numbers."""
        return self.order_nbytes is not None

    @property
    def device_nbytes(self) -> int:
        slots_nbytes = (self.slots + self.consumer_slots) * self.slot_nbytes
        return slots_nbytes + self.resident_nbytes + (self.order_nbytes or 0)


def choose_transport(
    device: DeviceInput,
    specs: tuple[ArraySpec, ...],
    *,
    batch_rows: int,
    cores: int,
    max_group_batches: int = MAX_GROUP_BATCHES,
    slot_specs: tuple[ArraySpec, ...] | None = None,
) -> Transport | None:
    """Return how the device pulls rows, or None if worker threads must stage them.

    `specs` describe rows in the source. `slot_specs` describe rows in a slot, whose dtypes may be narrower. `cores` is
    the number of CPU cores of this process. Raise BudgetError if the slots do not fit on the device, or if the rows do
    not fit there with `resident="always"`.
    """
    if not device.extents:
        return None
    if device.budget_nbytes is not None:
        device = replace(device, budget_nbytes=min(device.budget_nbytes, device.available_nbytes))
    device, order_decisions = _reserve_order_tables(device)
    row_nbytes = sum(spec.nbytes for spec in specs)
    stored_nbytes = row_nbytes - device.overlap_nbytes  # per resident row
    # A DMA per row needs a table of all rows, and windows (rows that overlap) may be too many for such a table.
    can_use_dma = cores >= MIN_DMA_CORES and not device.overlap_nbytes
    methods = tuple("dma" if spec.nbytes >= DMA_ROW_NBYTES and can_use_dma else "kernel" for spec in specs)
    slot_specs = specs if slot_specs is None else slot_specs
    choose_sizes = partial(_choose_sizes, device, _slot_nbytes(device, specs, slot_specs, batch_rows), stored_nbytes)
    # First try the sizes for resident rows. If not all rows fit on the device, use the sizes for a pull.
    for group_nbytes, slots, min_groups in (
        (RESIDENT_GROUP_NBYTES, RESIDENT_SLOTS, MIN_RESIDENT_GROUPS),
        (PULL_GROUP_NBYTES, PULL_SLOTS, MIN_GROUPS),
    ):
        batches_limit = (
            max_group_batches if device.batches is None else min(max_group_batches, device.batches // min_groups)
        )
        slots, group_batches, slot_nbytes = choose_sizes(group_nbytes, slots=slots, max_group_batches=batches_limit)
        resident_rows, why_resident = _resident_rows(
            device, stored_nbytes, slots_nbytes=(slots + device.consumer_slots) * slot_nbytes
        )
        all_resident = resident_rows == device.rows
        if all_resident:
            break
    name = "resident" if all_resident else "part resident" if resident_rows else "pull"
    decisions = [Decision("transport", name, why_resident), *order_decisions]
    if not all_resident:
        decisions.append(Decision("rows", ", ".join(dict.fromkeys(methods)), _why_methods(specs, methods)))
    why_group = f"filled together: {format_nbytes(slot_nbytes)}"
    decisions.append(Decision("group", f"{group_batches} batch{'es' if group_batches > 1 else ''}", why_group))
    if device.speeds is not None and row_nbytes and not all_resident:
        decisions.append(_expected_speed(device.speeds, specs, slot_specs, resident_rows / device.rows))
    return Transport(
        pull_methods=methods,
        resident_rows=resident_rows,
        group_batches=group_batches,
        slots=slots,
        threads=PULL_THREADS,
        slot_nbytes=slot_nbytes,
        resident_nbytes=resident_rows * stored_nbytes + (device.overlap_nbytes if resident_rows else 0),
        consumer_slots=device.consumer_slots,
        decisions=tuple(decisions),
        order_nbytes=device.order_nbytes,
    )


def _reserve_order_tables(device: DeviceInput) -> tuple[DeviceInput, list[Decision]]:
    """Return the device without the memory for the order's tables, and the decision.

    If the tables are too large, return the device with all its memory, but without tables (`order_nbytes` is None).
    Then the host computes the row numbers.
    """
    if not device.order_nbytes:
        return device, []
    limit = device.available_nbytes if device.budget_nbytes is None else device.budget_nbytes
    size = format_nbytes(device.order_nbytes)
    if device.order_nbytes > limit * MAX_ORDER_SHARE:
        why = f"the tables of the order need {size}, more than {MAX_ORDER_SHARE:.0%} of {format_nbytes(limit)}"
        return replace(device, order_nbytes=None), [Decision("row numbers", "host", why)]
    budget = None if device.budget_nbytes is None else device.budget_nbytes - device.order_nbytes
    device = replace(device, available_nbytes=device.available_nbytes - device.order_nbytes, budget_nbytes=budget)
    return device, [Decision("row numbers", "device", f"the tables of the order take {size} there")]


def _slot_nbytes(
    device: DeviceInput, specs: tuple[ArraySpec, ...], slot_specs: tuple[ArraySpec, ...], batch_rows: int
) -> Callable[[int], int]:
    """Return a function from a number of batches to the bytes of a slot.

    A slot contains the rows, the workspace of the kernels, and the 64-bit values of leaves before a kernel narrows
    them.
    """
    narrowed_specs = [spec for spec, output in zip(specs, slot_specs, strict=True) if spec.dtype != output.dtype]
    all_specs = (*slot_specs, *narrowed_specs)
    # Page-locking may split an extent into three: the first page, whole pages, and the last page. Resident rows are one
    # more extent.
    tables_nbytes = sum(align((3 * count + 1) * EXTENT_NBYTES, DEVICE_ALIGNMENT) for count in device.extents)

    def slot_nbytes(batches: int) -> int:
        layout = Layout.of(all_specs, batch_rows=batch_rows, batches=batches, alignment=DEVICE_ALIGNMENT)
        return layout.nbytes + batches * batch_rows * ROW_NUMBER_NBYTES + tables_nbytes + SLOT_OVERHEAD_NBYTES

    return slot_nbytes


def _choose_sizes(
    device: DeviceInput,
    slot_nbytes: Callable[[int], int],
    row_nbytes: int,
    group_nbytes: int,
    *,
    slots: int,
    max_group_batches: int,
) -> tuple[int, int, int]:
    """Return the number of slots, the batches per group, and the bytes per slot.

    `slot_nbytes` is the result of `_slot_nbytes`, and `row_nbytes` the bytes of a resident row. `group_nbytes`, `slots`
    and `max_group_batches` are upper limits.
    """
    batch_nbytes = slot_nbytes(1)
    resident_nbytes = device.rows * row_nbytes + device.overlap_nbytes if device.resident == "always" else 0
    slots_budget = _slots_budget(device, (MIN_SLOTS + device.consumer_slots) * batch_nbytes, resident_nbytes)
    slots = min(slots, slots_budget // batch_nbytes - device.consumer_slots)
    batches_per_slot = slots_budget // (slots + device.consumer_slots) // batch_nbytes
    group_batches = max(1, min(group_nbytes // batch_nbytes, max_group_batches, batches_per_slot))
    return slots, group_batches, slot_nbytes(group_batches)


def _slots_budget(device: DeviceInput, min_nbytes: int, resident_nbytes: int) -> int:
    """Return the bytes for all slots, at least `min_nbytes`.

    Raise BudgetError if `min_nbytes` and the resident rows do not fit into the device memory or its budget.
    """
    limit = device.available_nbytes if device.budget_nbytes is None else device.budget_nbytes
    needed = min_nbytes + resident_nbytes
    if needed > limit and resident_nbytes:
        raise BudgetError(
            f"resident='always' needs {format_nbytes(needed)} on {device.name}, slots included, but only "
            f"{format_nbytes(limit)} may be used. Use resident='auto': the device then pulls the rows that do not fit."
        )
    if needed > device.available_nbytes:
        raise BudgetError(
            f"slots for these batches need {format_nbytes(needed)} on {device.name}, but only "
            f"{format_nbytes(device.available_nbytes)} are available. Make batches smaller, or free device memory."
        )
    if needed > limit:
        raise BudgetError(
            f"device_bytes={format_nbytes(limit)} is too small: slots for these batches need "
            f"{format_nbytes(needed)}. Pass device_bytes='{-(-needed // 2**20)}MiB', or make batches smaller."
        )
    if device.budget_nbytes is None:
        share = min(int(limit * SLOTS_SHARE), max(LARGE_DEVICE_SLOTS_NBYTES, int(limit * LARGE_DEVICE_SLOTS_SHARE)))
    else:
        share = limit if device.resident == "never" else int(limit * BUDGET_SLOTS_SHARE)
    return max(min_nbytes, min(share, limit - resident_nbytes))


def _resident_rows(device: DeviceInput, row_nbytes: int, *, slots_nbytes: int) -> tuple[int, str]:
    """Return how many rows, from row 0 on, stay on the device, and why."""
    total_nbytes = device.rows * row_nbytes + device.overlap_nbytes
    limit = int(device.available_nbytes * MAX_RESIDENT_SHARE)
    if device.budget_nbytes is not None:
        limit = device.budget_nbytes - slots_nbytes
    limit = min(limit, device.available_nbytes - slots_nbytes)
    available = format_nbytes(device.available_nbytes)
    facts = f"{format_nbytes(total_nbytes)} of data, {available} available on {device.name}"
    if device.resident == "always":
        return device.rows, f"as requested: {facts}"
    if device.resident == "never":
        return 0, f"the device reads rows from host memory, because resident='never' was requested ({facts})"
    if total_nbytes <= limit:
        return device.rows, f"uploaded once during the first epoch: {facts}"
    rows = max(0, limit - device.overlap_nbytes) // max(1, row_nbytes)
    if rows < device.rows * MIN_RESIDENT_SHARE:
        return (
            0,
            f"less than {MIN_RESIDENT_SHARE:.0%} of the rows fit; the device reads all rows from host memory: {facts}",
        )
    return rows, f"{rows / device.rows:.0%} of the rows stay on the device; it pulls the others from the host: {facts}"


def _expected_speed(
    speeds: PullSpeeds, specs: tuple[ArraySpec, ...], slot_specs: tuple[ArraySpec, ...], resident_share: float
) -> Decision:
    """Return the decision with the expected speed, in bytes that the framework receives.

    The measured ceilings give the time to pull the rows. Resident rows count as if they took no time.
    """
    received_nbytes = sum(spec.nbytes for spec in slot_specs)
    pull_seconds = sum(spec.nbytes / speeds.bytes_per_second(spec.nbytes) for spec in specs if spec.nbytes)
    speed = received_nbytes / (pull_seconds * (1 - resident_share)) / 1e9
    return Decision("speed", f"{speed:.0f} GB/s", "expected from the ceilings that `forebay probe` measured")


def _why_methods(specs: tuple[ArraySpec, ...], methods: tuple[str, ...]) -> str:
    reasons = {
        "dma": "a DMA per row, which leaves the GPU's processors free",
        "kernel": "a small kernel reads them, in address order if they are short",
        "no dma": "a small kernel reads them; a DMA per row needs more than one CPU, and rows that do not overlap",
    }
    sizes_by_reason: dict[str, list[str]] = {}
    for spec, method in zip(specs, methods, strict=True):
        is_large = method == "kernel" and spec.nbytes >= DMA_ROW_NBYTES
        sizes_by_reason.setdefault("no dma" if is_large else method, []).append(format_nbytes(spec.nbytes))
    return "; ".join(f"rows of {' and '.join(sizes)}: {reasons[key]}" for key, sizes in sizes_by_reason.items())

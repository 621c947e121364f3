"""The planner for feeds whose rows the device pulls.

On the host, such a feed allocates only row numbers and staging buffers. This module is pure: it uses no thread, no
clock and no device.
"""

from forebay.core.decision import Decision
from forebay.core.spec import HOST_ALIGNMENT, Layout, align, format_nbytes
from forebay.errors import BudgetError
from forebay.pipeline.plan import INDEX_NBYTES, INDEX_ROWS, MIN_INDEX_ROWS, Plan, PlanInput
from forebay.pipeline.transport import MAX_GROUP_BATCHES, Transport, choose_transport
from forebay.transforms.augmentations import Augmentation, draws_by_row
from forebay.transforms.densify import Densify
from forebay.transforms.ops import Map, Transform

__all__ = ["describe_map", "describe_tables", "plan_device_pull", "why_on_device"]

STAGING_NBYTES = 8 << 20  # bytes per staging buffer; a buffer has more bytes only if one row needs them


def plan_device_pull(plan_input: PlanInput, cores: int, *, max_group_batches: int = MAX_GROUP_BATCHES) -> Plan | None:
    """Return the plan if the device pulls the rows, else None.

    If the plan exceeds the host budget, halve the batches per group. Raise BudgetError if groups of one batch exceed it
    too.
    """
    if plan_input.device is None:
        return None
    transport = choose_transport(
        plan_input.device,
        plan_input.source_specs,
        batch_rows=plan_input.batch_rows,
        cores=cores,
        max_group_batches=max_group_batches,
        slot_specs=plan_input.specs,
    )
    if transport is None:
        return None
    index_rows = _index_rows(plan_input, transport)
    scratch_nbytes = _scratch_nbytes(plan_input, transport, index_rows)
    if scratch_nbytes <= plan_input.host_nbytes:
        return _make_plan(plan_input, transport, index_rows, scratch_nbytes)
    if transport.group_batches > 1:
        return plan_device_pull(plan_input, cores, max_group_batches=transport.group_batches // 2)
    needed_mib, tables = -(-scratch_nbytes // 2**20), describe_tables(plan_input)
    raise BudgetError(
        f"host_bytes={format_nbytes(plan_input.host_nbytes)} is too small: {f'{tables}, and ' if tables else ''}"
        f"staging buffers and row numbers {'need a total of' if tables else 'take'} {needed_mib} MiB. "
        f"Pass host_bytes='{needed_mib}MiB'."
    )


def why_on_device(transform: Transform, *, has_gpu: bool = True) -> str:
    """Return the reason why a transform runs on the device.

    Without a GPU, only a map with where="device" and the transforms after it run there.
    """
    if not has_gpu:
        return f"no GPU: the framework runs it where the batches are{describe_map(transform)}"
    if isinstance(transform, Densify):
        return "fewer bytes cross the link than those of dense rows"
    requested = transform.where == "device"
    if isinstance(transform, Augmentation):
        why = "the device computes pixels faster than the CPU"
    else:
        why = "as requested" if requested else "no more bytes cross the link, and the device is faster"
    return why + describe_map(transform)


def describe_map(transform: Transform) -> str:
    """Return notes for `explain()` about random numbers and about errors of a map."""
    if not isinstance(transform, Map):
        return "; random numbers belong to the row" if draws_by_row(transform) else ""
    owner = "row" if transform.by_row else "batch, and change with the batch size and the shards"
    random = f"; random numbers belong to the {owner}" if transform.takes_rng else ""
    limit = transform.max_errors
    return random + ("" if limit is None else f"; rows that fail are replaced, up to {limit * 100:.4g} % of all rows")


def describe_tables(plan_input: PlanInput) -> str:
    """Return a clause about the memory of the order's tables; empty without tables."""
    nbytes = plan_input.order_nbytes
    return f"tables of the order take {format_nbytes(nbytes)}" if nbytes else ""


def _index_rows(plan_input: PlanInput, transport: Transport) -> int:
    """Return how many row numbers the host computes at a time.

    The result is the number of rows of 8 groups, or of as many groups as an epoch has batches if these are fewer. It is
    at least MIN_INDEX_ROWS. It is at most INDEX_ROWS, or the rows of one group if these are more. If the length of an
    epoch is unknown, the result is this upper limit.
    """
    group_rows = transport.group_batches * plan_input.batch_rows
    limit = max(INDEX_ROWS, group_rows)
    rows = limit if plan_input.batches is None else group_rows * min(plan_input.batches, 8)
    return min(max(rows, MIN_INDEX_ROWS), limit)


def _scratch_nbytes(plan_input: PlanInput, transport: Transport, index_rows: int) -> int:
    """Return the bytes of host memory for row numbers, staging buffers and the order's tables.

    A row number needs memory twice: where the feed computes it, and 8 bytes in an upload buffer of its slot. Each
    thread has two staging buffers, and so does the consumer, which may fill slots too.
    """
    group_rows = transport.group_batches * plan_input.batch_rows
    row_nbytes = sum(align(spec.nbytes, HOST_ALIGNMENT) for spec in plan_input.source_specs)
    numbers_nbytes = index_rows * INDEX_NBYTES + (transport.slots + transport.consumer_slots) * group_rows * 8
    buffers_nbytes = (2 * transport.threads + 2) * max(STAGING_NBYTES, row_nbytes)
    return numbers_nbytes + buffers_nbytes + plan_input.order_nbytes


def _make_plan(plan_input: PlanInput, transport: Transport, index_rows: int, scratch_nbytes: int) -> Plan:
    slots = f"{transport.slots + transport.consumer_slots} x {format_nbytes(transport.slot_nbytes)}"
    memory = f"{format_nbytes(scratch_nbytes)} on the host, {format_nbytes(transport.device_nbytes)} on the device"
    tables = describe_tables(plan_input)
    why_memory = f"host: row numbers and staging buffers{f' ({tables})' if tables else ''}"
    decisions = (
        *plan_input.decisions,
        *transport.decisions,
        Decision("slots", slots, "on the device"),
        *(Decision(str(transform), "device", why_on_device(transform)) for transform in plan_input.device_transforms),
        Decision("memory", memory, f"{why_memory}; device: slots and resident rows"),
    )
    return Plan(
        input=plan_input,
        layout=Layout.of(
            plan_input.specs,
            batch_rows=plan_input.batch_rows,
            batches=transport.group_batches,
            alignment=plan_input.alignment,
        ),
        threads=transport.threads,
        processes=0,
        group_batches=transport.group_batches,
        slots=transport.slots,
        slot_nbytes=0,  # of host memory: the slots are on the device
        scratch_nbytes=scratch_nbytes,
        index_rows=index_rows,
        decisions=decisions,
        transport=transport,
    )

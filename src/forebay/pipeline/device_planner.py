"""How rows will run that the device fetches by itself: the host holds row numbers and a few staging buffers. Pure."""

from forebay.core.decision import Reason
from forebay.core.spec import HOST_ALIGNMENT, Layout, align, format_nbytes
from forebay.errors import BudgetError
from forebay.pipeline.plan import FEWEST_INDEX_ROWS, INDEX_NBYTES, INDEX_ROWS, Demand, Plan
from forebay.pipeline.transport import GROUP_BATCHES, Transport, choose_transport
from forebay.transforms.ops import Transform

__all__ = ["plan_fetched", "why_afterwards"]

STAGING_NBYTES = 8 << 20  # a buffer that rows are staged through, where the device fetches most; a row at least


def plan_fetched(demand: Demand, cores: int, *, most: int = GROUP_BATCHES) -> Plan | None:
    """None where there is no device, or rows must be staged. Groups have so many batches at most."""
    if demand.device is None:
        return None
    transport = choose_transport(
        demand.device,
        demand.source_specs,
        batch_rows=demand.batch_rows,
        cores=cores,
        most=most,
        held=demand.specs,
    )
    if transport is None:
        return None
    index_rows = _index_rows(demand, transport)
    scratch = _scratch_nbytes(demand, transport, index_rows)
    if scratch <= demand.host_nbytes:
        return _plan(demand, transport, index_rows, scratch)
    if transport.group_batches > 1:
        return plan_fetched(demand, cores, most=transport.group_batches // 2)
    needed = -(-scratch // 2**20)
    raise BudgetError(
        f"host_bytes={format_nbytes(demand.host_nbytes)} is too small: staging and row numbers take "
        f"{needed} MiB. Pass host_bytes='{needed}MiB'."
    )


def why_afterwards(transform: Transform) -> str:
    """Why a transform runs on the device, once rows have arrived."""
    return "as asked" if transform.where == "device" else "fewer bytes cross, and the device is quicker at it"


def _index_rows(demand: Demand, transport: Transport) -> int:
    """Row numbers computed at a time."""
    group_rows = transport.group_batches * demand.batch_rows
    wanted = max(INDEX_ROWS, group_rows) if demand.batches is None else group_rows * min(demand.batches, 8)
    return min(max(wanted, FEWEST_INDEX_ROWS), max(INDEX_ROWS, group_rows))


def _scratch_nbytes(demand: Demand, transport: Transport, index_rows: int) -> int:
    """Row numbers, those of each slot, and what rows are staged through."""
    group_rows = transport.group_batches * demand.batch_rows
    row_nbytes = sum(align(spec.nbytes, HOST_ALIGNMENT) for spec in demand.source_specs)
    numbers = index_rows * INDEX_NBYTES + (transport.slots + transport.in_use) * group_rows * 8
    return numbers + (2 * transport.threads + 2) * max(STAGING_NBYTES, row_nbytes)


def _plan(demand: Demand, transport: Transport, index_rows: int, scratch: int) -> Plan:
    where = f"{format_nbytes(scratch)} on the host, {format_nbytes(transport.device_nbytes)} on the device"
    reasons = (
        *demand.notes,
        *transport.reasons,
        Reason(
            "slots", f"{transport.slots + transport.in_use} x {format_nbytes(transport.slot_nbytes)}", "on the device"
        ),
        *(Reason(str(transform), "device", why_afterwards(transform)) for transform in demand.afterwards),
        Reason("memory", where, "row numbers and staging; slots and what is resident"),
    )
    return Plan(
        demand=demand,
        layout=Layout.of(
            demand.specs, batch_rows=demand.batch_rows, batches=transport.group_batches, alignment=demand.alignment
        ),
        threads=transport.threads,
        processes=0,
        group_batches=transport.group_batches,
        slots=transport.slots,
        slot_nbytes=0,
        scratch_nbytes=scratch,
        index_rows=index_rows,
        reasons=reasons,
        transport=transport,
    )

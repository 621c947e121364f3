"""Rows, batches and budgets for tests of transports."""

from hypothesis import strategies as st

from forebay.core.spec import DEVICE_ALIGNMENT, ArraySpec, Layout
from forebay.engines.cuda.kernel_workspace import KernelWorkspace
from forebay.pipeline.plan import LENT_SLOTS
from forebay.pipeline.transport import MIN_SLOTS, DeviceInput, choose_transport

MIB, GIB = 2**20, 2**30
SLOTS_IN_USE = 2  # slots of the consumer, as in `device_of`
MIN_ALL_SLOTS = MIN_SLOTS + SLOTS_IN_USE
SPARE = 8 << 10  # bytes by which the planned size of a slot may exceed its need
ROW = ArraySpec((250,), "float32")  # 1000 bytes
NUMBER = ArraySpec((), "float32")


def device_of(*, rows, available=100 * GIB, budget=None, resident="auto", extents=(1,), **more):
    return DeviceInput("cuda:0", available, budget, resident, rows, extents, **{"consumer_slots": LENT_SLOTS} | more)


def transport_of(specs=(ROW,), *, batch_rows=100, cores=16, **plan_input):
    return choose_transport(device_of(**plan_input), specs, batch_rows=batch_rows, cores=cores)


def decision_of(transport, name):
    return next((decision for decision in transport.decisions if decision.name == name), None)


def slot_needs(specs, batch_rows, batches=1, *, extents=1):
    """Return the bytes that a slot needs for rows and for kernel tables."""
    rows = Layout.of(specs, batch_rows=batch_rows, batches=batches, alignment=DEVICE_ALIGNMENT).nbytes
    return rows + KernelWorkspace.nbytes(batch_rows * batches, [3 * extents + 1] * len(specs))


row_specs = st.lists(st.builds(ArraySpec, st.tuples(st.integers(1, 200_000)), st.just("uint8")), min_size=1, max_size=3)


@st.composite
def cases(draw):
    """Draw rows, batches and a budget: sometimes just enough for slots, sometimes for all rows."""
    specs = tuple(draw(row_specs))
    batch_rows, rows = draw(st.integers(1, 300)), draw(st.integers(1, 10**7))
    least = MIN_ALL_SLOTS * (slot_needs(specs, batch_rows) + SPARE)
    return {
        "specs": specs,
        "rows": rows,
        "batch_rows": batch_rows,
        "batches": draw(st.none() | st.just(-(-rows // batch_rows))),
        "budget": int(least * 2 ** draw(st.floats(0, 12))) + draw(st.integers(0, 1000)),
        "extents": (1,) * len(specs),
    }

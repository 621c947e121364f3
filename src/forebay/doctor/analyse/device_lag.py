"""How many operations a step queues, and how far the device lags behind the loop."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.doctor.analyse.attribution import match_calls
from forebay.doctor.model.device_records import RecordKind

__all__ = ["KERNELS", "Lag", "find_lag", "find_period"]

MAX_COMPARED_OPERATIONS = 20_000  # limits the time of the search for the period
EQUAL_SHARE = 0.97  # of the operations must repeat; the others are extra work of some steps, for example to print
# Kinds of computing operations. A graph is a set of kernels that one call launches; a memset counts as a kernel.
KERNELS = (RecordKind.KERNEL, RecordKind.CONCURRENT_KERNEL, RecordKind.GRAPH_TRACE, RecordKind.MEMSET)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far the device executed what the recorded steps queued."""

    queued: float  # mean number of operations that a step queues
    finished_until: int  # nanoseconds; the end of the last step whose operations the device executed


def find_lag(records: Any, calls: Any, edges: Any) -> Lag | None:
    """Return how far the device lags behind; None without a lag or without recorded calls.

    Operations that did not run have no records, and neither have their calls. So if the last steps queued no kernel,
    the device did not reach these steps. `edges` are the start of each step and the end of the last.
    """
    operations = records[np.isin(records["kind"], (*KERNELS, RecordKind.MEMCPY))]
    call_of = match_calls(operations, calls)
    has_call = call_of >= 0
    if not has_call.any():
        return None
    queued_at = calls["start"].astype(np.int64)[call_of[has_call]]
    if queued_at.min() < edges[0]:  # the recording starts one step before the first edge
        edges = np.concatenate([[queued_at.min()], edges])
    last = queued_at[np.isin(operations["kind"][has_call], KERNELS)].max(initial=0)
    finished = int(np.searchsorted(edges, last, "right")) - 1
    if not 0 < finished < len(edges) - 2:
        return None
    return Lag(np.count_nonzero(queued_at < edges[finished]) / finished, int(edges[finished]))


def find_period(operations: Any, expected: float) -> int:
    """Return the number of operations after which their sequence repeats, or 0.

    `expected` is the mean number of recorded operations per step. The result is the period nearest to `expected`, from
    0.8 to 3 times `expected`. If the device lags behind the loop, the period is larger than `expected`, because fewer
    operations ran than the steps queued.
    """
    compared = operations[:MAX_COMPARED_OPERATIONS]
    signatures = np.stack(
        [compared["kind"], compared["what"], compared["name"], compared["grid"][:, 0], compared["nbytes"] % (1 << 31)],
        axis=1,
    )
    _, signature_ids = np.unique(signatures.astype(np.int64), axis=0, return_inverse=True)
    signature_ids = signature_ids.ravel()
    candidates = range(max(1, int(expected * 0.8)), min(len(signature_ids) // 2, int(expected * 3) + 2) + 1)
    for period in sorted(candidates, key=lambda period: abs(period - expected)):
        if np.mean(signature_ids[period:] == signature_ids[:-period]) >= EQUAL_SHARE:
            return period
    return 0

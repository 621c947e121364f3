"""Copies are assigned to the events that made them, by size and time."""

import numpy as np
import pytest
from tests.doctor.device_rig import device_records

from forebay.doctor.analyse.attribution import MAX_SCALAR_NBYTES, NO_MATCH, match_events
from forebay.doctor.model.device_records import CopyKind, RecordKind
from forebay.doctor.model.events import LedgerEvent

THREAD, OTHER = 1, 2


def owners(nbytes, copies, *, uploads=((0, 100),), operations=()):
    """Return the index of the event of each copy. All times are nanoseconds."""
    events = [LedgerEvent("upload", "jnp.array", 5, THREAD, *times, nbytes, {}) for times in uploads]
    events += [LedgerEvent("ops", "jax operations", 6, THREAD, *times, 0, {}) for times in operations]
    rows = [
        {
            "start": start,
            "end": start + 10,
            "nbytes": nbytes,
            "kind": RecordKind.MEMCPY,
            "what": CopyKind.HOST_TO_DEVICE,
        }
        for start in copies
    ]
    records = device_records(rows).records
    none = np.zeros(0, [("thread", int), ("start", int)])
    return match_events(records, none, np.full(len(rows), NO_MATCH), events, THREAD).tolist()


def test_the_first_of_several_small_copies_belongs_to_the_upload_and_the_others_to_operations():
    assert owners(4, [200, 1_200, 1_300], operations=[(1_000, 2_000)]) == [0, 1, 1]


@pytest.mark.parametrize(("nbytes", "count"), [(MAX_SCALAR_NBYTES, 1), (MAX_SCALAR_NBYTES + 1, 3)])
def test_only_scalars_may_belong_to_operations(nbytes, count):
    assert owners(nbytes, [200, 1_200, 1_300], operations=[(1_000, 2_000)]).count(0) == count


def test_as_many_copies_as_uploads_are_paired_in_order_of_time():
    assert owners(4, [200, 1_200], uploads=[(0, 100), (150, 180)]) == [0, 1]

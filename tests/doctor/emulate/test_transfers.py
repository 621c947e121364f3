"""Skipped reads: after a read that failed, and during the first read."""

from unittest.mock import Mock

import pytest

from forebay.doctor.emulate.transfers import SkippedReads
from forebay.doctor.model.emulation import Emulation, EmulationKind


class CallingLine:
    """Replaces the target line. Every call counts as a call of this line."""

    def is_calling(self):
        return True

    def bypass(self, call):
        return call()


@pytest.fixture
def reads():
    return SkippedReads(Emulation(EmulationKind.DEFER, "train.py", 3), CallingLine())


def test_a_read_after_a_first_read_that_failed_runs_as_written(reads):
    with pytest.raises(ValueError, match="not ready"):
        reads.read(Mock(side_effect=ValueError("not ready")), "item", 1.0)
    assert reads.read(lambda: 7, "item", 1.0) == 7
    assert reads.replaced == 0
    assert reads.read(Mock(side_effect=AssertionError), "item", 1.0) == 7
    assert reads.replaced == 1


def test_a_read_during_the_first_read_runs_as_written(reads):
    """For example, in another thread."""
    assert reads.read(lambda: (1, reads.read(lambda: 2, "item", 1.0)), "item", 1.0) == (1, 2)

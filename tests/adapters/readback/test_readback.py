"""Readback: later, in order, bounded; all_finite: asked where the data is."""


import numpy as np
import pytest

from forebay.adapters.readback import numpy as numpy_results
from forebay.adapters.readback.all_finite import all_finite
from forebay.errors import SpecError

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


class Device:
    """A device whose results arrive when a test says so, or when somebody waits for them."""

    def __init__(self):
        self.pending = []
        self.waited = []
        self.closed = 0

    def __call__(self, limit):
        return self

    def fetch(self, leaves):
        self.pending.append(PendingCopy(self, [np.array(leaf) for leaf in leaves]))
        return self.pending[-1]

    def close(self):
        self.closed += 1


class PendingCopy:
    def __init__(self, device, arrays):
        self.device, self.arrays, self.arrived, self.error = device, arrays, False, None

    def take(self):
        if not self.arrived:
            self.device.waited.append(int(self.arrays[0]))
        if self.error is not None:
            raise self.error
        return self.arrays


@pytest.fixture
def device(monkeypatch):
    made = Device()
    monkeypatch.setattr(numpy_results, "Fetcher", made)
    return made


def tags(results):
    return [result.tag for result in results]


def put(readback, count):
    for step in range(count):
        readback.put(step, tag=step)


def test_what_is_no_number_is_refused():
    with pytest.raises(SpecError, match="neither finite nor infinite"):
        all_finite(np.array(["a"]))

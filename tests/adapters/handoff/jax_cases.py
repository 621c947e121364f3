"""How JAX takes over what lies on a GPU, with a stand-in for the GPU."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax._src.lib import _jax

from forebay.adapters.handoff.jax import DLPACK_CUDA, _fast_import

STREAM = 17
DEVICE = SimpleNamespace(get_stream_for_external_ready_events=lambda: STREAM)


class Root:
    """Rows that have arrived or not, as is found out when a capsule is asked for."""

    shadow = np.zeros(3, np.float32)
    there = False

    def __init__(self, *, arrived):
        self.arrived, self.held = arrived, []

    def __dlpack__(self, *, stream):
        self.there = self.arrived
        if not self.there:
            self.held.append(stream)
        return "capsule"


@pytest.fixture
def taken(monkeypatch):
    calls = []
    monkeypatch.setattr(_jax, "dlpack_managed_tensor_to_buffer", lambda *arguments: calls.append(arguments) or "array")
    return calls


def test_rows_that_are_on_their_way_are_waited_for_on_a_stream(taken):
    root = Root(arrived=False)
    assert _fast_import(DEVICE)(root) == "array"
    assert root.held == [STREAM]
    assert taken == [("capsule", DEVICE, STREAM, None, DLPACK_CUDA)]


def test_rows_that_are_there_are_taken_over_without_a_stream(taken):
    assert _fast_import(DEVICE)(Root(arrived=True)) == "array"
    assert taken == [("capsule", DEVICE, None, None, DLPACK_CUDA)]


def test_another_signature_falls_back_to_the_public_call(monkeypatch):
    def moved(*arguments):
        raise TypeError("incompatible function arguments")

    monkeypatch.setattr(_jax, "dlpack_managed_tensor_to_buffer", moved)
    monkeypatch.setattr(jax.dlpack, "from_dlpack", lambda root: ("by the public call", root))
    root = Root(arrived=True)
    assert _fast_import(DEVICE)(root) == ("by the public call", root)

"""Imports of device memory by JAX's private DLPack function, with a fake GPU.

`tests/test_framework_cases.py` runs this file in a process of its framework, because frameworks conflict in one
process.
"""

from types import SimpleNamespace

import jax
import jax._src.lib
import numpy as np
import pytest

from forebay.adapters.handoff.jax import DLPACK_CUDA, _private_import

STREAM = 17
DEVICE = SimpleNamespace(get_stream_for_external_ready_events=lambda: STREAM)


class FakeRoot:
    """A root that sets `has_arrived` in `__dlpack__`, as a real root does."""

    shadow = np.zeros(3, np.float32)
    has_arrived = False

    def __init__(self, *, arrived):
        self._has_arrived_at_export, self.waiting_streams = arrived, []

    def __dlpack__(self, *, stream):
        self.has_arrived = self._has_arrived_at_export
        if not self.has_arrived:
            self.waiting_streams.append(stream)
        return "capsule"


def replace_private_function(monkeypatch, function):
    functions = SimpleNamespace(dlpack_managed_tensor_to_buffer=function)
    monkeypatch.setattr(jax._src.lib, "_jax", functions, raising=False)  # older versions of JAX lack `_jax`


@pytest.fixture
def imports(monkeypatch):
    calls = []
    replace_private_function(monkeypatch, lambda *arguments: calls.append(arguments) or "array")
    return calls


def test_a_stream_waits_for_rows_in_flight(imports):
    root = FakeRoot(arrived=False)
    assert _private_import(DEVICE)(root) == "array"
    assert root.waiting_streams == [STREAM]
    assert imports == [("capsule", DEVICE, STREAM, None, DLPACK_CUDA)]


def test_arrived_rows_are_imported_without_a_stream(imports):
    assert _private_import(DEVICE)(FakeRoot(arrived=True)) == "array"
    assert imports == [("capsule", DEVICE, None, None, DLPACK_CUDA)]


def test_an_unknown_signature_falls_back_to_the_public_function(monkeypatch):
    def with_other_signature(*arguments):
        raise TypeError("incompatible function arguments")

    replace_private_function(monkeypatch, with_other_signature)
    monkeypatch.setattr(jax.dlpack, "from_dlpack", lambda root: ("by the public call", root))
    root = FakeRoot(arrived=True)
    assert _private_import(DEVICE)(root) == ("by the public call", root)

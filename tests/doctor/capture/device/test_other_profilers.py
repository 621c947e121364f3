"""Where somebody else records the device, it is left to him, and the report says so."""

import sys
from types import SimpleNamespace

import pytest

from forebay.doctor.capture.device import ledger
from forebay.doctor.capture.device import ledger as others
from forebay.doctor.capture.device.ledger import DeviceLedger, profiler_at_work

MODULES = ("torch.autograd.profiler", "tensorflow.python.profiler.profiler_v2", "jax._src.profiler")


@pytest.fixture(autouse=True)
def nobody(monkeypatch):
    for setting in others._SETTINGS:
        monkeypatch.delenv(setting, raising=False)
    for module in MODULES:
        monkeypatch.delitem(sys.modules, module, raising=False)


def test_nobody_is_at_work_where_nothing_is_loaded():
    assert profiler_at_work() is None


@pytest.mark.parametrize(
    ("module", "on", "name"),
    [
        ("torch.autograd.profiler", SimpleNamespace(_is_profiler_enabled=True), "torch.profiler"),
        ("tensorflow.python.profiler.profiler_v2", SimpleNamespace(_profiler=object()), "tf.profiler"),
        (
            "jax._src.profiler",
            SimpleNamespace(_profile_state=SimpleNamespace(profile_session=object())),
            "jax.profiler",
        ),
    ],
)
def test_a_framework_is_asked_whether_its_profiler_is_on(monkeypatch, module, on, name):
    monkeypatch.setitem(sys.modules, module, on)
    assert profiler_at_work() == name


@pytest.mark.parametrize("module", MODULES)
def test_a_version_that_keeps_it_elsewhere_is_not_asked(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, SimpleNamespace())
    assert profiler_at_work() is None


@pytest.mark.parametrize(("setting", "name"), others._SETTINGS.items())
def test_a_tool_that_started_the_program_is_known(monkeypatch, setting, name):
    monkeypatch.setenv(setting, "1")
    assert profiler_at_work() == name


def test_it_is_left_to_him_and_said(monkeypatch):
    monkeypatch.setattr(ledger, "_uses_a_device", lambda: True)
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "7")
    notes = []
    assert not DeviceLedger(notes).start()
    assert notes == ["what the GPU does is not seen: Nsight Systems records it, and CUPTI serves one at a time."]

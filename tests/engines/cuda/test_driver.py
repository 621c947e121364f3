"""`with device:` reports errors of the driver, and restores the CUDA state of the thread."""

import threading
from types import SimpleNamespace

import pytest

from forebay.engines.cuda import driver
from forebay.engines.cuda.driver import Device, Event
from forebay.errors import DeviceError

INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


@pytest.fixture
def device(monkeypatch):
    """Return a device. `calls` lists the calls of the driver, and `codes` has their error codes."""
    monkeypatch.setattr(driver, "cuda_error", lambda code, activity: DeviceError(f"CUDA failed {activity} ({code})"))
    made = object.__new__(Device)
    made.calls, made.codes = [], {}

    def call_of(name):
        return lambda argument: made.calls.append(name) or made.codes.get(name, 0)

    made.index, made._context, made._thread_state = 0, 1, threading.local()
    made._calls = SimpleNamespace(push_context=call_of("push"), pop_context=call_of("pop"))
    made._calls.exchange_capture_mode = call_of("exchange")
    return made


def test_nested_blocks_make_the_device_current_once(device):
    with device, device:
        assert device.calls == ["push", "exchange"]
    assert device.calls == ["push", "exchange", "exchange", "pop"]


def test_a_failed_push_raises_an_error(device):
    device.codes["push"] = INVALID_CONTEXT
    with pytest.raises(DeviceError, match=r"making device 0 current \(201\)"):
        device.make_current()
    assert device.calls == ["push"]
    device.codes.clear()
    with device:
        assert device.calls == ["push", "push", "exchange"]


def test_a_failed_change_of_the_capture_mode_removes_the_context(device):
    device.codes["exchange"] = INVALID_CONTEXT
    with pytest.raises(DeviceError, match=r"capture mode of the thread \(201\)"):
        device.make_current()
    assert device.calls == ["push", "exchange", "pop"]


def test_an_error_inside_a_block_is_not_replaced(device):
    device.codes["pop"] = INVALID_CONTEXT
    with pytest.raises(KeyError), device:
        raise KeyError


def test_freeing_ignores_errors_of_the_driver(device):
    device.codes["push"] = INVALID_CONTEXT
    device.free(1)
    event = object.__new__(Event)
    event._device = device
    event.close()
    assert device.calls == ["push", "push"]

"""Staging buffers: no buffer is written while a copy may still read it."""

import threading

import pytest
from tests.support.fake_device import Device, Event

from forebay.engines.cuda.pull.staged_rows import StagingBuffers
from forebay.errors import DeviceError

pytestmark = pytest.mark.timeout(300)  # after a lost buffer, a test would wait forever


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr("forebay.engines.cuda.pull.staged_rows.Event", Event)
    return Device()


def test_a_reused_buffer_waits_for_the_copy_from_it(device):
    staging = StagingBuffers(device, max_buffers=1, nbytes=4096)
    taken = staging.take()
    assert taken[1].calls == []
    staging.give_back(taken, "stream")
    assert staging.take() is taken
    assert taken[1].calls == [("record", "stream"), ("wait",)]
    assert list(device.locked.values()) == [4096]


def test_buffers_are_allocated_on_demand_up_to_the_limit(device):
    staging = StagingBuffers(device, max_buffers=2, nbytes=4096)
    first, second = staging.take(), staging.take()
    assert len(device.locked) == 2
    third = []
    waiting = threading.Thread(target=lambda: third.append(staging.take()))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    staging.give_back(second, "stream")
    waiting.join(60)
    assert third == [second]
    assert first is not second


def test_closing_releases_all_buffers(device):
    staging = StagingBuffers(device, max_buffers=2, nbytes=4096)
    taken = [staging.take(), staging.take()]
    staging.close()
    assert device.locked == {}
    assert [event.calls for _, event in taken] == [[("close",)]] * 2


@pytest.mark.parametrize("fails", ["record", "wait"])
def test_a_device_failure_is_raised_every_time_and_never_hangs(device, monkeypatch, fails):
    staging = StagingBuffers(device, max_buffers=1, nbytes=4096)
    staging.give_back(staging.take(), "stream")
    monkeypatch.setattr(Event, fails, lambda *arguments: lose_device())
    for _ in range(3):
        with pytest.raises(DeviceError, match="lost"):
            staging.give_back(staging.take(), "stream")


def lose_device():
    raise DeviceError("the device is lost")

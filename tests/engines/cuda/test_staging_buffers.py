"""Page-locked buffers that go round: none is written while the copy out of it may be under way."""

import threading

import pytest
from tests.support.plain_device import Device, Event

from forebay.engines.cuda.staging_buffers import Staging
from forebay.errors import DeviceError

pytestmark = pytest.mark.timeout(300)  # a buffer that is lost is waited for


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr("forebay.engines.cuda.staging_buffers.Event", Event)
    return Device()


def test_a_buffer_goes_round_and_is_waited_for_before_it_is_written_again(device):
    staging = Staging(device, buffers=1, nbytes=4096)
    taken = staging.take()
    assert taken[1].calls == []
    staging.give_back(taken, "stream")
    assert staging.take() is taken
    assert taken[1].calls == [("record", "stream"), ("wait",)]
    assert list(device.locked.values()) == [4096]


def test_buffers_are_made_as_they_are_needed_and_no_more_than_allowed(device):
    staging = Staging(device, buffers=2, nbytes=4096)
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


def test_closing_gives_all_buffers_back(device):
    staging = Staging(device, buffers=2, nbytes=4096)
    taken = [staging.take(), staging.take()]
    staging.close()
    assert device.locked == {}
    assert [event.calls for _, event in taken] == [[("close",)]] * 2


@pytest.mark.parametrize("fails", ["record", "wait"])
def test_a_device_that_fails_is_told_of_every_time_and_never_waited_for(device, monkeypatch, fails):
    staging = Staging(device, buffers=1, nbytes=4096)
    staging.give_back(staging.take(), "stream")
    monkeypatch.setattr(Event, fails, lambda *arguments: lose_device())
    for _ in range(3):
        with pytest.raises(DeviceError, match="lost"):
            staging.give_back(staging.take(), "stream")


def lose_device():
    raise DeviceError("the device is lost")

"""The device ledger has the records of its last recording, and none if this recording failed."""

from unittest.mock import Mock

import pytest

from forebay.doctor.capture.device import ledger
from forebay.doctor.capture.device.ledger import DeviceLedger
from forebay.errors import DeviceError

EARLY_RECORDS = Mock(dropped=0)


@pytest.fixture
def recorder(monkeypatch):
    fake = Mock()
    monkeypatch.setattr(ledger, "has_loaded_cuda", lambda: True)
    monkeypatch.setattr(ledger, "active_profiler", lambda: None)
    monkeypatch.setattr(ledger, "CuptiRecorder", lambda: fake)
    return fake


def test_a_recording_that_fails_leaves_no_earlier_records(recorder):
    recorder.stop.side_effect = [EARLY_RECORDS, DeviceError("the device is lost")]
    device_ledger = DeviceLedger(Mock())
    device_ledger.start()
    device_ledger.stop()
    assert device_ledger.recorded is EARLY_RECORDS
    device_ledger.start()
    device_ledger.stop()
    assert device_ledger.recorded is None


def test_a_recording_that_cannot_start_leaves_no_earlier_records(recorder):
    recorder.stop.side_effect = [EARLY_RECORDS]
    recorder.start.side_effect = [None, DeviceError("CUPTI is in use")]
    device_ledger = DeviceLedger(Mock())
    device_ledger.start()
    device_ledger.stop()
    assert not device_ledger.start()
    assert device_ledger.recorded is None

"""The thread of the loop stops the profiler of PyTorch, even if the session ends in another thread."""

import sys
import threading
from unittest.mock import Mock

import pytest

from forebay.doctor.capture.session import Session
from forebay.doctor.model.events import EventKind

STEP_END = (EventKind.STEP, "optimizer.step", 0)


@pytest.fixture
def autograd(monkeypatch):
    torch = Mock()
    torch._C._autograd._profiler_enabled.return_value = False
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.delitem(sys.modules, "torch.autograd.profiler", raising=False)
    return torch._C._autograd


def test_the_loop_stops_the_profiler_if_the_session_has_ended_in_another_thread(autograd):
    session = Session()
    session.detector.phase, session.detector.anchor = "tracing", STEP_END
    session._arithmetic.start()
    stopping = threading.Thread(target=session.stop)
    stopping.start()
    stopping.join()
    autograd._disable_profiler_legacy.assert_not_called()
    session.ledger.write(STEP_END, 1, 2)
    autograd._disable_profiler_legacy.assert_called_once()
    assert not session.ledger.is_on


def test_the_loop_stops_the_profiler_with_the_session(autograd):
    session = Session()
    session.detector.phase, session.detector.anchor = "tracing", STEP_END
    session._arithmetic.start()
    session.stop()
    autograd._disable_profiler_legacy.assert_called_once()
    assert not session.ledger.is_on

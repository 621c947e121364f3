"""Runs a whole script in a profiling session."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import thread as pools
from contextlib import nullcontext
from dataclasses import dataclass
from time import monotonic

from forebay.doctor.capture.run_script import run_module, run_script
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.signal_handlers import SigtermReceived, raise_on_sigterm
from forebay.doctor.capture.sigterm_deadline import report_at_deadline, sigterm_deadline
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.model.capture import STILL_RUNNING, Capture

__all__ = ["RunRequest", "profile_run", "run_profiled", "wait_for_threads"]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Which script to run, and how many of its steps to profile."""

    script: str
    arguments: tuple[str, ...] = ()
    module: bool = False  # `script` is the name of a module, as for `python -m`
    stop: bool = False  # end the script when enough steps were recorded
    warm_up: int = 10  # number of steps before the profiled steps
    steps: int = 50  # number of steps to profile


def profile_run(
    run: RunRequest,
    report_early: Callable[[Capture], None] | None = None,
    report_last: Callable[[Capture], None] | None = None,
    has_steps: Callable[[Capture], bool] = lambda capture: True,
) -> Capture:
    """Run a script in a new session and return the capture.

    The session may have recorded enough steps before the script ends. With `run.stop`, the script then ends, if
    `has_steps(capture)` is True. Without `run.stop`, this calls `report_early` with the capture so far, and the script
    continues. If the script does not end after SIGTERM, another thread calls `report_last` with the capture and ends
    the process.
    """

    def on_enough() -> None:
        if not run.stop and report_early is None:
            return
        capture = session.capture(run.script, run.arguments, ended=STILL_RUNNING)
        if not run.stop and report_early is not None:
            report_early(capture)
        elif has_steps(capture):
            sys.exit(0)

    def on_deadline() -> None:
        if report_last is not None:
            session.stop()
            report_last(session.capture(run.script, run.arguments, ended="terminated"))

    session = Session(StepDetector(warm_up=run.warm_up, steps=run.steps), on_enough=on_enough, covers_script=True)
    with report_at_deadline(on_deadline) if report_last is not None else nullcontext():
        return run_profiled(run, session)


def run_profiled(run: RunRequest, session: Session) -> Capture:
    """Run a script in `session`, wait for its threads, and return the capture."""
    session.start()
    try:
        ended = (run_module if run.module else run_script)(run.script, run.arguments)
        if ended == "done":
            ended = wait_for_threads(lambda: session.ledger.event_count, session.is_done)
    finally:
        session.stop()
    return session.capture(run.script, run.arguments, ended=ended)


# After this time without an event, `_wait` returns. Python joins the threads later, after the report.
SILENT_SECONDS = 2.0
POLL_SECONDS = 0.05


def wait_for_threads(event_count: Callable[[], int], is_done: Callable[[], bool]) -> str:
    """Wait for the threads of the script; return how the wait ended.

    Return "interrupted" or "terminated" after a signal, else "done". The wait ends early if enough steps were recorded,
    or if the threads record no events for SILENT_SECONDS.
    """
    try:
        with sigterm_deadline(), raise_on_sigterm():
            _wait(event_count, is_done)
    except KeyboardInterrupt:
        return "interrupted"
    except SigtermReceived:
        return "terminated"
    return "done"


def _wait(event_count: Callable[[], int], is_done: Callable[[], bool]) -> None:
    last_count, silent_since = event_count(), monotonic()
    while threads := _surviving_threads():
        threads[0].join(POLL_SECONDS)
        if event_count() != last_count:
            last_count, silent_since = event_count(), monotonic()
        if is_done() or monotonic() - silent_since > SILENT_SECONDS:
            return


def _surviving_threads() -> list[threading.Thread]:
    """Return the threads that Python joins at exit, without threads of `concurrent.futures` pools.

    An idle thread of a pool ends only when Python exits, so do not wait for it.
    """
    others = (threading.main_thread(), threading.current_thread(), *pools._threads_queues)
    return [thread for thread in threading.enumerate() if not thread.daemon and thread not in others]

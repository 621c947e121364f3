"""A script run under watch, from its beginning to its end."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import thread as pools
from dataclasses import dataclass
from time import monotonic

from forebay.doctor.capture.run_script import run_module, run_script
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import Stepping
from forebay.doctor.model.capture import Capture

__all__ = ["Run", "await_threads", "run_watched", "watch_run"]


@dataclass(frozen=True, slots=True)
class Run:
    """What is to be run, and for how long it is watched."""

    script: str
    arguments: tuple[str, ...] = ()
    module: bool = False
    stop: bool = False  # once enough was seen
    warm_up: int = 10
    steps: int = 50


def watch_run(run: Run) -> Capture:
    stepping = Stepping(warm_up=run.warm_up, steps=run.steps)
    return run_watched(run, Session(stepping, done=_stop if run.stop else _go_on, whole=True))


def run_watched(run: Run, session: Session) -> Capture:
    """What this session sees of the run."""
    streams = sys.stdout, sys.stderr
    session.start()
    try:
        ended = (run_module if run.module else run_script)(run.script, run.arguments)
        if ended == "done":
            ended = await_threads(lambda: session.ledger.written, session.is_over)
    finally:
        session.stop()
        sys.stdout, sys.stderr = streams  # wherever the script sent its own words, the report belongs here
        if sys.stdout.closed:
            sys.stdout = sys.stderr
    sys.stdout.write("\n")  # the script may have left a line unfinished
    return session.capture(run.script, run.arguments, ended=ended)


def _stop() -> None:
    sys.exit(0)


def _go_on() -> None:
    """The script is let run to its end."""


SILENT_SECONDS = 2.0  # after which a thread is left to itself: Python waits for it, once the report is out
LOOK_SECONDS = 0.05


def await_threads(seen: Callable[[], int], is_over: Callable[[], bool]) -> str:
    """Until all have ended, nothing more is to be seen of them, or somebody interrupts; in words."""
    try:
        _await(seen, is_over)
    except KeyboardInterrupt:
        return "interrupted"
    return "done"


def _await(seen: Callable[[], int], is_over: Callable[[], bool]) -> None:
    before, silent_since = seen(), monotonic()
    while threads := _outliving():
        threads[0].join(LOOK_SECONDS)
        if seen() != before:
            before, silent_since = seen(), monotonic()
        if is_over() or monotonic() - silent_since > SILENT_SECONDS:
            return


def _outliving() -> list[threading.Thread]:
    """Those that Python would wait for: not those of pools, which it sends home."""
    others = (threading.main_thread(), threading.current_thread(), *pools._threads_queues)
    return [thread for thread in threading.enumerate() if not thread.daemon and thread not in others]

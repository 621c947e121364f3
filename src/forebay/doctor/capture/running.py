"""A script run under watch, from its beginning to its end."""

import sys
from dataclasses import dataclass

from forebay.doctor.capture.outliving import await_threads
from forebay.doctor.capture.script import run_module, run_script
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.window import Stepping
from forebay.doctor.captured import Capture

__all__ = ["Run", "run_watched", "watch_run"]


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

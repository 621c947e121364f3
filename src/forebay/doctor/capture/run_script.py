"""Runs a user script or module in this process, as `python` would run it."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from forebay.doctor.capture.main_module import install_module, install_script
from forebay.doctor.capture.signal_handlers import SigtermReceived, raise_on_sigterm, restore_handlers_on_failure
from forebay.doctor.capture.sigterm_deadline import sigterm_deadline

__all__ = ["run_module", "run_script"]

_CAPTURE_FOLDER = str(Path(__file__).parent)


def run_script(path: str, arguments: Sequence[str], *, source: str | None = None) -> str:
    """Run a file; return how it ended, as in `Capture.ended`. If `source` is given, run it in place of the file."""
    return _run_in_this_process(install_script(path, arguments, source=source))


def run_module(name: str, arguments: Sequence[str]) -> str:
    """Run a module as `python -m name` does; return how it ended, as in `Capture.ended`."""
    return _run_in_this_process(install_module(name, arguments))


def _run_in_this_process(run: Callable[[], object]) -> str:
    """Run a script; return how it ended, as in `Capture.ended`.

    In a process that the script has forked, exit instead: only the original process reports.
    """
    process = os.getpid()
    ended = _run(run)
    if os.getpid() != process:
        raise SystemExit(_exit_code(ended))
    return ended


def _exit_code(ended: str) -> int:
    """Return the exit code of Python for `ended`; 1 for "terminated"."""
    if ended == "done":
        return 0
    code = ended.removeprefix("exit ")
    return int(code) if code.lstrip("-").isdigit() else 130 if ended == "interrupted" else 1


def _run(run: Callable[[], object]) -> str:
    """Run a script and return how it ended.

    This calls `sys.excepthook` outside of an `except` block, as Python does.
    """
    match _raised_by(run):
        case None:
            return "done"
        case SystemExit(code=code):
            return _end_with(code)
        case SigtermReceived():
            return "terminated"
        case KeyboardInterrupt() as error:
            if sys.excepthook is not sys.__excepthook__:  # the default hook prints less than the report
                _call_excepthook(error)
            return "interrupted"
        case error:
            _call_excepthook(error)
            return f"{type(error).__name__}: {error}"


def _raised_by(run: Callable[[], object]) -> BaseException | None:
    try:
        with restore_handlers_on_failure(), sigterm_deadline(), raise_on_sigterm():
            run()
    except BaseException as error:
        return error
    return None


def _end_with(code: object) -> str:
    """Return how a script that raised `SystemExit(code)` ended.

    Print a code that is not a number, as Python does.
    """
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)  # noqa: T201  # as Python prints the text of sys.exit()
    return "done" if code in (None, 0) else f"exit {code}"


def _call_excepthook(error: BaseException) -> None:
    """Call `sys.excepthook` as Python does, with the traceback of the script."""
    error.__traceback__ = _without_runner(error.__traceback__)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    sys.last_exc = error  # type: ignore[attr-defined]  # mypy checks for Python 3.11; `last_exc` exists since 3.12
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException as hook_error:
        if isinstance(hook_error, SystemExit):
            return
        hook_error.__traceback__ = _without_runner(hook_error.__traceback__)
        print("Error in sys.excepthook:", file=sys.stderr)  # noqa: T201  # as Python does
        traceback.print_exception(hook_error)
        print("\nOriginal exception was:", file=sys.stderr)  # noqa: T201  # as Python does
        traceback.print_exception(error)


def _without_runner(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the outer frames of Forebay."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_CAPTURE_FOLDER):
        trace = trace.tb_next
    return trace

"""Runs a user script or module in this process, as `python` would run it."""

import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from forebay.doctor.capture.signal_handlers import SigtermReceived, raise_on_sigterm, restore_handlers_on_failure

__all__ = ["run_module", "run_script"]

_CAPTURE_FOLDER = str(Path(__file__).parent)


def run_script(path: str, arguments: Sequence[str]) -> str:
    """Run a file; return how it ended, as in `Capture.ended`."""
    file = str(Path(path).absolute())  # absolute, because the script may change the working directory
    with _argv_and_path([path, *arguments], str(Path(path).resolve().parent)):
        return _run_in_this_process(lambda: runpy.run_path(file, run_name="__main__"))


def run_module(name: str, arguments: Sequence[str]) -> str:
    """Run a module as `python -m name` does; return how it ended, as in `Capture.ended`."""
    with _argv_and_path([name, *arguments], str(Path.cwd())):
        return _run_in_this_process(lambda: runpy.run_module(name, run_name="__main__", alter_sys=True))


@contextmanager
def _argv_and_path(argv: list[str], folder: str) -> Iterator[None]:
    """Set `sys.argv`, and replace `sys.path[0]` by `folder`; restore both at the end."""
    old_argv, old_path = sys.argv, sys.path[:]
    sys.argv, sys.path[0:1] = argv, [folder]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = old_argv, old_path


def _run_in_this_process(run: Callable[[], object]) -> str:
    """Return how the run ended. A process that the script has forked exits here, because it needs no report."""
    process = os.getpid()
    ended = _run(run)
    if os.getpid() != process:
        raise SystemExit(_exit_code(ended))
    return ended


def _exit_code(ended: str) -> int:
    """Return the exit code of Python for this end; 1 for "terminated"."""
    if ended == "done":
        return 0
    code = ended.removeprefix("exit ")
    return int(code) if code.lstrip("-").isdigit() else 130 if ended == "interrupted" else 1


def _run(run: Callable[[], object]) -> str:
    try:
        with restore_handlers_on_failure(), raise_on_sigterm():
            run()
    except SystemExit as exit_error:
        if exit_error.code is not None and not isinstance(exit_error.code, int):
            sys.stderr.write(f"{exit_error.code}\n")  # as Python does
        return "done" if exit_error.code in (None, 0) else f"exit {exit_error.code}"
    except KeyboardInterrupt:
        return "interrupted"
    except SigtermReceived:
        return "terminated"
    except BaseException as error:
        _print_traceback(error)
        return f"{type(error).__name__}: {error}"
    return "done"


def _print_traceback(error: BaseException) -> None:
    """Print the traceback of the script, without the outer frames of Forebay and `runpy`."""
    trace = error.__traceback__
    while trace is not None and _is_runner_file(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _is_runner_file(file: str) -> bool:
    return file.startswith((_CAPTURE_FOLDER, "<frozen runpy")) or file.endswith("runpy.py")

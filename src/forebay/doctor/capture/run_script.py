"""Runs a user script as Python would: its arguments, its folder first on the path, its own way to end."""

import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from forebay.doctor.capture.signal_handlers import SigtermReceived, raise_on_sigterm, restore_handlers_on_failure

__all__ = ["run_module", "run_script"]

_OURS = str(Path(__file__).parent)


def run_script(path: str, arguments: Sequence[str]) -> str:
    """Run a file; return how it ended."""
    file = str(Path(path).absolute())  # absolute, so that it is still found after the script changes its folder
    with _as_main([path, *arguments], str(Path(path).resolve().parent)):
        return _run_in_this_process(lambda: runpy.run_path(file, run_name="__main__"))


def run_module(name: str, arguments: Sequence[str]) -> str:
    """Run a module as `python -m name` does; return how it ended."""
    with _as_main([name, *arguments], str(Path.cwd())):
        return _run_in_this_process(lambda: runpy.run_module(name, run_name="__main__", alter_sys=True))


@contextmanager
def _as_main(argv: list[str], folder: str) -> Iterator[None]:
    before, path = sys.argv, sys.path[:]
    sys.argv, sys.path[0:1] = argv, [folder]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before, path


def _run_in_this_process(run: Callable[[], object]) -> str:
    """Return how the run ended. A process that the script forked also returns here: end it without a report."""
    process = os.getpid()
    ended = _run(run)
    if os.getpid() != process:
        raise SystemExit(_exit_code(ended))
    return ended


def _exit_code(ended: str) -> int:
    """Return the exit code that Python would give."""
    if ended == "done":
        return 0
    code = ended.removeprefix("exit ")
    return int(code) if code.lstrip("-").isdigit() else 130 if ended == "interrupted" else 1


def _run(run: Callable[[], object]) -> str:
    try:
        with restore_handlers_on_failure(), raise_on_sigterm():
            run()
    except SystemExit as leaving:
        if leaving.code is not None and not isinstance(leaving.code, int):
            sys.stderr.write(f"{leaving.code}\n")  # as Python does
        return "done" if leaving.code in (None, 0) else f"exit {leaving.code}"
    except KeyboardInterrupt:
        return "interrupted"
    except SigtermReceived:
        return "terminated"
    except BaseException as error:
        _print_traceback(error)
        return f"{type(error).__name__}: {error}"
    return "done"


def _print_traceback(error: BaseException) -> None:
    """Print the traceback of the script without frames of Forebay."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _is_ours(file: str) -> bool:
    return file.startswith((_OURS, "<frozen runpy")) or file.endswith("runpy.py")

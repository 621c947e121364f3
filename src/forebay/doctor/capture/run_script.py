"""Running somebody's script as Python would: its arguments, its folder first on the path, its own way to end."""

import os
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forebay.doctor.capture.sigterm import Terminated, terminable

__all__ = ["handlers_put_back", "run_module", "run_script"]

_OURS = str(Path(__file__).parent)


def run_script(path: str, arguments: Sequence[str]) -> str:
    """Run a file; how it ended, in words."""
    file = str(Path(path).absolute())  # as Python names it, so that it is still found when the script leaves its folder
    with _as_main([path, *arguments], str(Path(path).resolve().parent)):
        return _ended(lambda: runpy.run_path(file, run_name="__main__"))


def run_module(name: str, arguments: Sequence[str]) -> str:
    """The same for `-m name`."""
    with _as_main([name, *arguments], str(Path.cwd())):
        return _ended(lambda: runpy.run_module(name, run_name="__main__", alter_sys=True))


@contextmanager
def _as_main(argv: list[str], folder: str) -> Iterator[None]:
    before, path = sys.argv, sys.path[:]
    sys.argv, sys.path[0:1] = argv, [folder]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before, path


def _ended(run: Callable[[], object]) -> str:
    """How it ended. A process that the script forked comes out here too, and must end without a word of ours."""
    process = os.getpid()
    ended = _run(run)
    if os.getpid() != process:
        raise SystemExit(_exit_code(ended))
    return ended


def _exit_code(ended: str) -> int:
    """As Python would end."""
    if ended == "done":
        return 0
    code = ended.removeprefix("exit ")
    return int(code) if code.lstrip("-").isdigit() else 130 if ended == "interrupted" else 1


def _run(run: Callable[[], object]) -> str:
    try:
        with handlers_put_back(), terminable():
            run()
    except SystemExit as leaving:
        if leaving.code is not None and not isinstance(leaving.code, int):
            sys.stderr.write(f"{leaving.code}\n")  # as Python does
        return "done" if leaving.code in (None, 0) else f"exit {leaving.code}"
    except KeyboardInterrupt:
        return "interrupted"
    except Terminated:
        return "terminated"
    except BaseException as error:
        _show(error)
        return f"{type(error).__name__}: {error}"
    return "done"


def _show(error: BaseException) -> None:
    """The traceback as the user knows it, without our frames."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _is_ours(file: str) -> bool:
    return file.startswith((_OURS, "<frozen runpy")) or file.endswith("runpy.py")


@contextmanager
def handlers_put_back() -> Iterator[None]:
    """What handled signals before, where the script fails; else its threads may go on, and want their own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    except BaseException:
        try:
            _put_back(before)
        except Exception:  # of a handler that was called just now
            _put_back(before)
        raise


def _put_back(before: dict[Any, Any]) -> None:
    for number, handler in before.items():
        now = signal.getsignal(number)
        if now is not handler and None not in (now, handler):  # None: somebody's who does not write Python
            signal.signal(number, handler)

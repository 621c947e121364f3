"""Pickling of functions for workers, and of exceptions that workers return."""

import importlib
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from forebay.core.decision import function_name
from forebay.errors import PipelineError

__all__ = ["Failure", "dump", "dump_function"]


def dump(message: object) -> bytes:
    """Return an object as pickled bytes."""
    return pickle.dumps(message, protocol=5)


def dump_function(function: object) -> bytes:
    """Return a pickled function for worker processes.

    Try `pickle` and, if it is installed, `cloudpickle`. `_picklers` chooses the order of the two.
    """
    last_error: Exception | None = None
    for pickler in _picklers():
        try:
            return pickler(function)
        except Exception as error:  # PicklingError, AttributeError, TypeError or an exception of a user's __reduce__
            last_error = error
    why = str(last_error).rstrip(".")
    raise PipelineError(
        f"{function_name(function)} cannot be sent to worker processes: {why}. Define it at the top level of a "
        'module, remove locks and open files from it, install cloudpickle, or run it with where="thread".'
    ) from last_error


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception that a worker sends to its pool."""

    pickled: bytes | None  # None if the exception cannot be pickled, or is not an Exception (such as SystemExit)
    summary: str  # type and message of the exception
    traceback_text: str

    @classmethod
    def of(cls, error: BaseException, pickler: Callable[[object], bytes] = dump) -> "Failure":
        summary = "".join(traceback.format_exception_only(error)).strip()
        return cls(_try_dump(error, pickler), summary, "".join(traceback.format_exception(error)))

    def rebuild(self, where: str) -> Exception:
        """Return the exception with the worker's traceback as a note.

        If the exception cannot be unpickled, return a RuntimeError with its summary. `where` names the worker.
        """
        error = _try_load(self.pickled) or RuntimeError(self.summary)
        error.add_note(f"In {where}:\n{self.traceback_text.rstrip()}")
        return error


def _picklers() -> Iterator[Callable[[object], bytes]]:
    """Yield the pickle functions in the order to try them.

    `pickle` stores only the name of a function. Workers cannot import a function that was defined at a prompt. So if
    the program is a prompt, `pickle` comes last.
    """
    importable = _workers_can_import_main()
    if importable:
        yield dump
    with suppress(ImportError):
        yield importlib.import_module("cloudpickle").dumps
    if not importable:
        yield dump


def _workers_can_import_main() -> bool:
    main = sys.modules["__main__"]
    return getattr(main, "__spec__", None) is not None or getattr(main, "__file__", None) is not None


def _try_dump(error: BaseException, pickler: Callable[[object], bytes]) -> bytes | None:
    if not isinstance(error, Exception):  # if the parent raised SystemExit in a thread, this thread would end silently
        return None
    try:
        return pickler(error)
    except Exception:
        return None


def _try_load(pickled: bytes | None) -> Exception | None:
    try:
        error = None if pickled is None else pickle.loads(pickled)  # nosec B301  # our own worker
    except Exception:  # for example, an exception whose `__init__` does not accept its `args`
        return None
    return error if isinstance(error, Exception) else None

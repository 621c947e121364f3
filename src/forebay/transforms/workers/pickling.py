"""Functions and errors as bytes: what a worker is sent once, and what it sends back when it fails."""

import importlib
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from forebay.errors import PipelineError

__all__ = ["Failure", "dump", "dump_work", "name_of"]


def dump(message: object) -> bytes:
    return pickle.dumps(message, protocol=5)


def dump_work(work: object) -> bytes:
    """The function for the workers, as bytes; by `cloudpickle` where plain pickle cannot, if it is installed."""
    reason: Exception | None = None
    for pickler in _picklers():
        try:
            return pickler(work)
        except Exception as error:  # PicklingError, AttributeError or TypeError, as it comes
            reason = error
    raise PipelineError(
        f"{name_of(work)} cannot be sent to worker processes: {reason}. Define it at the top level of a module, "
        'without locks or open files in it; or install cloudpickle; or run it with where="thread".'
    ) from reason


def name_of(work: object) -> str:
    return getattr(work, "__qualname__", None) or getattr(work, "name", None) or type(work).__qualname__


@dataclass(frozen=True, slots=True)
class Failure:
    """An error on its way from a worker to its pool."""

    pickled: bytes | None  # None where the error does not pickle, or is one that must not end the thread it reaches
    summary: str
    report: str

    @classmethod
    def of(cls, error: BaseException, pickler: Callable[[object], bytes] = dump) -> "Failure":
        summary = "".join(traceback.format_exception_only(error)).strip()
        return cls(_try_dump(error, pickler), summary, "".join(traceback.format_exception(error)))

    def rebuild(self, where: str) -> Exception:
        """The error itself where it can be had, with its traceback there as a note."""
        error = _try_load(self.pickled) or RuntimeError(self.summary)
        error.add_note(f"In {where}:\n{self.report.rstrip()}")
        return error


def _picklers() -> Iterator[Callable[[object], bytes]]:
    # Plain pickle names a function typed at a prompt without complaint, and no worker would find it: there it is last.
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
    if not isinstance(error, Exception):  # SystemExit would end the parent's thread without a word
        return None
    try:
        return pickler(error)
    except Exception:
        return None


def _try_load(pickled: bytes | None) -> Exception | None:
    try:
        error = None if pickled is None else pickle.loads(pickled)
    except Exception:  # an error whose constructor takes other arguments than it keeps: pickles, but does not load
        return None
    return error if isinstance(error, Exception) else None

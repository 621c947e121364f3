"""One entry on its way through a case: what goes wrong in its process becomes its row, and nobody else's."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from forebay.measure.bench.contender_process import ContenderFailed, ContenderProcess
from forebay.measure.bench.contenders import CONTENDERS
from forebay.measure.bench.model import Entry, Skip
from forebay.measure.bench.results import Row, Status

__all__ = ["Lane"]


class Lane:
    """An entry, its process while it has one, and the samples so far."""

    def __init__(self, entry: Entry, *, timeout_seconds: float) -> None:
        self.entry = entry
        self.consumer = ""
        self._timeout_seconds = timeout_seconds
        self._process: ContenderProcess | None = None
        self._status: Status = "measured"
        self._reason = ""
        self._samples: dict[str, list[float]] = {}
        self._taken = 0

    def start(self, request: Mapping[str, Any]) -> None:
        """Begin to set up; `ready` waits for it."""
        contender = CONTENDERS[self.entry.contender]
        if contender.missing():
            self._drop("not installed", contender.install)
            return
        self._process = ContenderProcess()
        with self._recorded():
            self._process.ask({"do": "set_up", **request})

    def ready(self) -> None:
        with self._recorded():
            self.consumer = self._answer()["consumer"]

    def warm_up(self) -> None:
        with self._recorded():
            self._request("warm_up")

    def sample(self) -> None:
        """Take one sample of every column."""
        with self._recorded():
            for column, value in self._request("sample")["sample"].items():
                self._samples.setdefault(column, []).append(value)
            self._taken += 1

    def wants_more(self, repeats: int) -> bool:
        return self.running and self._taken < (self.entry.repeats or repeats)

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def row(self) -> Row:
        samples = {column: tuple(values) for column, values in self._samples.items()}
        return Row(self.entry.label, self.entry.contender, self._status, self._reason, samples)

    def hang_up(self) -> None:
        """Ask for nothing more; the process begins to end, while others do the same."""
        if self._process is not None:
            self._process.hang_up()

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def _request(self, verb: str) -> dict[str, Any]:
        if self._process is not None:
            self._process.ask({"do": verb})
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        if self._process is None:
            raise ContenderFailed(self._reason)
        return self._process.answer(timeout_seconds=self._timeout_seconds)

    def _drop(self, status: Status, reason: str) -> None:
        self._status, self._reason = status, reason
        self._samples.clear()  # half a row would be read as a whole one
        self.close()

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        try:
            yield
        except Skip as reason:
            self._drop("skipped", str(reason))
        except ContenderFailed as failure:
            self._drop("failed", str(failure))

"""Readback: what a device computed comes back later, in order, and the training loop does not wait for it.

`float(loss)` stops the program until the device has done everything queued before, and the device then has nothing
to do until the program has queued more. A Readback starts the copy behind the work that makes the result, lets the
program go on, and gives out what has arrived.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

from forebay.adapters.readback.base import Fetcher, Pending, fetch_grouped, framework_of, module_of, unwrap
from forebay.core.spec import Tree, flatten, format_nbytes, parse_nbytes
from forebay.errors import BudgetError, FeedClosedError

__all__ = ["Readback", "Result"]


class Result(NamedTuple):
    """What was put, as NumPy arrays, with its tag."""

    tag: Any
    value: Tree


class Readback:
    """Brings results from the device to the host without stopping either.

    A result is what it was when it was put, whatever is done to it later: PyTorch, CuPy and JAX make a copy on the
    device first. Results of bfloat16 in PyTorch come as float32, for NumPy has no such type.

    At most `limit` results are on their way: with so many, `put` waits until the oldest has arrived. What has arrived
    is kept until it is taken, and `put` refuses more once that is over `host_bytes`. Any thread may put and take.

    >>> import numpy as np
    >>> with Readback() as readback:
    ...     for step in range(3):
    ...         readback.put({"loss": np.float32(step / 2)}, tag=step)
    ...         for tag, value in readback.ready():
    ...             print(tag, value["loss"])
    0 0.0
    1 0.5
    2 1.0
    """

    def __init__(self, *, limit: int = 64, host_bytes: int | str = "1GiB") -> None:
        if limit < 1:
            raise BudgetError(f"limit={limit} lets nothing be on its way: pass 1 or more.")
        self._limit = limit
        self._host_nbytes = parse_nbytes(host_bytes, "host_bytes")
        self._fetchers: dict[str, Fetcher] = {}
        self._under_way: deque[_UnderWay] = deque()
        self._landed: deque[_Landed] = deque()
        self._landed_nbytes = 0
        self._closed = False
        self._mutex = threading.RLock()

    def put(self, tree: Tree, *, tag: Any = None) -> None:
        """Start to bring back an array or a tree of arrays, of one framework or several."""
        leaves, structure = flatten(tree)
        with self._mutex:
            self._check_open()
            while len(self._under_way) >= self._limit:
                self._land()
            pending = fetch_grouped([unwrap(leaf) for leaf in leaves], framework_of, self._fetch)
            self._under_way.append(_UnderWay(tag, pending, structure.unflatten))

    def ready(self) -> list[Result]:
        """What has arrived since this was last asked, in the order it was put; waits for nothing that computes.

        JAX tells only that a result exists: there, the rest of its copy is waited for.
        """
        with self._mutex:
            while self._under_way and self._under_way[0].arrived:
                self._land()
            return self._take()

    def drain(self) -> list[Result]:
        """All that was put and not taken yet, in order, waited for."""
        with self._mutex:
            while self._under_way:
                self._land()
            return self._take()

    def close(self) -> None:
        """Wait for what is on its way and give back what was used for it; `drain` still gives the results."""
        with self._mutex:
            self._closed = True
            while self._under_way:
                self._land()
            while self._fetchers:
                self._fetchers.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise FeedClosedError("this Readback is closed: put() before close(), or make another one.")
        if self._landed_nbytes > self._host_nbytes:
            raise BudgetError(
                f"{len(self._landed)} results of {format_nbytes(self._landed_nbytes)} have arrived and nobody took "
                f"them: loop over ready() as you go, or pass host_bytes= above {format_nbytes(self._host_nbytes)}."
            )

    def _fetch(self, framework: str, leaves: list[Any]) -> Pending:
        if framework not in self._fetchers:
            self._fetchers[framework] = module_of(framework).Fetcher(self._limit)
        return self._fetchers[framework].fetch(leaves)

    def _land(self) -> None:
        """Bring the oldest down; what went wrong with it is told when it is taken."""
        landed = self._under_way[0].land()
        self._under_way.popleft()
        self._landed.append(landed)
        self._landed_nbytes += landed.nbytes

    def _take(self) -> list[Result]:
        """All that landed, up to the first that failed; with nothing before it, its error."""
        taken = []
        while self._landed and self._landed[0].error is None:
            landed = self._landed.popleft()
            self._landed_nbytes -= landed.nbytes
            taken.append(landed.result)
        if self._landed and not taken:
            error = self._landed.popleft().error
            assert error is not None
            raise error
        return taken


@dataclass(frozen=True, slots=True)
class _Landed:
    """A result on the host, or what kept it from getting there."""

    result: Result
    nbytes: int = 0
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class _UnderWay:
    tag: Any
    pending: Pending
    build: Callable[[list[Any]], Tree]

    @property
    def arrived(self) -> bool:
        """Also when it failed: landing it tells how."""
        try:
            return self.pending.arrived
        except Exception:
            return True

    def land(self) -> _Landed:
        try:
            arrays = self.pending.take()
        except Exception as error:
            error.add_note(f"while reading back the result that was put with tag={self.tag!r}")
            return _Landed(Result(self.tag, None), error=error)
        return _Landed(Result(self.tag, self.build(arrays)), sum(array.nbytes for array in arrays))

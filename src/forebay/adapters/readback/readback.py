"""`Readback` copies results to the host, and `all_finite` checks arrays, without blocking the training loop.

`float(loss)` blocks the program until the device has done all queued work. The device is then idle until the program
queues more work. `Readback.put` instead queues a copy behind the work that computes the result, and returns. Later, the
program takes the results that have arrived on the host.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from forebay.adapters.readback.base import (
    HostCopier,
    PendingCopy,
    framework_module,
    framework_of,
    start_grouped_copies,
    unwrap_variable,
)
from forebay.core.spec import Tree, flatten, format_nbytes, parse_nbytes
from forebay.errors import BudgetError, FeedClosedError, SpecError
from forebay.pipeline.familiar_words import reject_attribute

__all__ = ["Readback", "Result", "all_finite"]


class Result(NamedTuple):
    """A result as NumPy arrays, with its tag."""

    tag: Any
    value: Tree


class Readback:
    """Copies results from the device to the host while the program and the device continue.

    A result has the values at the time of `put`, even if the array changes later: PyTorch, CuPy and JAX first copy the
    array on the device. PyTorch results of bfloat16 become float32, because NumPy has no bfloat16.

    The Readback keeps arrived results until you take them with `ready` or `drain`. If a copy has failed, both methods
    return the results before the failed one; if there are none, they raise the error of the copy. Several threads may
    call the methods of a Readback.

    Args:
        limit: Upper limit of results in flight. At the limit, `put` waits until the oldest of them has arrived.
        host_bytes: Upper limit for the bytes of arrived results. If the results exceed it, `put` raises BudgetError.

    Examples:
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
            raise BudgetError(f"limit={limit} allows no result in flight. Pass 1 or more.")
        self._limit = limit
        self._host_nbytes = parse_nbytes(host_bytes, "host_bytes")
        self._copiers: dict[str, HostCopier] = {}
        self._pending: deque[_PendingResult] = deque()
        self._arrived: deque[_ArrivedResult] = deque()
        self._arrived_nbytes = 0
        self._is_closed = False
        self._lock = threading.RLock()

    def put(self, tree: Tree, *, tag: Any = None) -> None:
        """Start to copy an array or a tree of arrays to the host.

        Args:
            tree: The array, or a tree of arrays, which may be of several frameworks.
            tag: Any value. `ready` and `drain` return it with the result.
        """
        leaves, structure = flatten(tree)
        with self._lock:
            self._check_can_put()
            while len(self._pending) >= self._limit:
                self._finish_oldest()
            pending = start_grouped_copies([unwrap_variable(leaf) for leaf in leaves], framework_of, self._start_copy)
            self._pending.append(_PendingResult(tag, pending, structure.unflatten))

    def ready(self) -> list[Result]:
        """Return the results that have arrived since the last call, in the order of `put`.

        This does not wait for the device to compute a result. It may wait for JAX to copy a computed result, because
        JAX does not report the end of a copy.
        """
        with self._lock:
            while self._pending and self._pending[0].has_arrived:
                self._finish_oldest()
            return self._take_arrived()

    def drain(self) -> list[Result]:
        """Wait for all results, and return those that you have not taken, in order."""
        with self._lock:
            while self._pending:
                self._finish_oldest()
            return self._take_arrived()

    def close(self) -> None:
        """Wait for all results, and release memory and streams. `drain` still returns the results."""
        with self._lock:
            self._is_closed = True
            while self._pending:
                self._finish_oldest()
            while self._copiers:
                self._copiers.popitem()[1].close()

    def __repr__(self) -> str:
        closed = "closed, " if self._is_closed else ""
        arrived = f"{len(self._arrived)} arrived ({format_nbytes(self._arrived_nbytes)})"
        return f"<Readback: {closed}{len(self._pending)} in flight, {arrived}>"

    if not TYPE_CHECKING:  # type checkers report missing attributes themselves

        def __getattr__(self, name: str) -> Any:
            return reject_attribute(self, name, "a Readback")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check_can_put(self) -> None:
        if self._is_closed:
            raise FeedClosedError("this Readback is closed. Call put() before close(), or make another Readback.")
        if self._arrived_nbytes > self._host_nbytes:
            raise BudgetError(
                f"{len(self._arrived)} results of {format_nbytes(self._arrived_nbytes)} have arrived, and the program "
                "has not taken them. Loop over ready() in each step, or pass host_bytes= above "
                f"{format_nbytes(self._host_nbytes)}."
            )

    def _start_copy(self, framework: str, leaves: list[Any]) -> PendingCopy:
        if framework not in self._copiers:
            self._copiers[framework] = framework_module(framework).HostCopier(self._limit)
        return self._copiers[framework].start_copy(leaves)

    def _finish_oldest(self) -> None:
        """Wait for the oldest result. If its copy failed, `_take_arrived` raises the error."""
        arrived = self._pending[0].finish()
        self._pending.popleft()
        self._arrived.append(arrived)
        self._arrived_nbytes += arrived.nbytes

    def _take_arrived(self) -> list[Result]:
        """Return all arrived results before the first failed one.

        If the first result has failed, raise its error.
        """
        taken = []
        while self._arrived and self._arrived[0].error is None:
            arrived = self._arrived.popleft()
            self._arrived_nbytes -= arrived.nbytes
            taken.append(arrived.result)
        if self._arrived and not taken:
            error = self._arrived.popleft().error
            assert error is not None
            raise error
        return taken


def all_finite(tree: Tree) -> Any:
    """Return whether all numbers in a tree of arrays are finite.

    The result is one boolean on the device of the arrays. The program waits for the device only when it reads the
    boolean. To avoid the wait, pass the boolean to a `Readback`.

    Args:
        tree: An array or a tree of arrays of one framework. Integers count as finite. A leaf may be None, as the
            gradient of an unused variable is; it is ignored.

    Examples:
        >>> import numpy as np
        >>> bool(all_finite({"loss": np.float32(0.5), "grads": [np.zeros(3), np.array([1.0, np.nan])]}))
        False
    """
    leaves = [unwrap_variable(leaf) for leaf in flatten(list(tree) if isinstance(tree, Iterator) else tree)[0]]
    leaves = [leaf for leaf in leaves if not _is_none(leaf)]
    frameworks = sorted({framework_of(leaf) for leaf in leaves})
    if not frameworks:
        return np.bool_(True)
    if len(frameworks) > 1:
        raise SpecError(
            f"the tree has arrays of {' and '.join(frameworks)}, but the result can be an array of only one "
            "framework. Call all_finite once for each framework."
        )
    return framework_module(frameworks[0]).all_finite(leaves)


@dataclass(frozen=True, slots=True)
class _ArrivedResult:
    """A result on the host, or the error of its copy."""

    result: Result
    nbytes: int = 0
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class _PendingResult:
    """A result whose copy may still run."""

    tag: Any
    pending: PendingCopy
    build_tree: Callable[[list[Any]], Tree]

    @property
    def has_arrived(self) -> bool:
        """Whether the copy is done or has failed; `finish` returns the error."""
        try:
            return self.pending.has_arrived
        except Exception:
            return True

    def finish(self) -> _ArrivedResult:
        """Wait for the copy, and return its result or its error."""
        try:
            arrays = self.pending.take()
        except Exception as error:
            error.add_note(f"while reading back the result that was put with tag={self.tag!r}")
            return _ArrivedResult(Result(self.tag, None), error=error)
        return _ArrivedResult(Result(self.tag, self.build_tree(arrays)), sum(array.nbytes for array in arrays))


def _is_none(leaf: Any) -> bool:
    """Return whether a leaf is None or a list of None, such as missing gradients."""
    return leaf is None or (isinstance(leaf, list) and all(map(_is_none, leaf)))

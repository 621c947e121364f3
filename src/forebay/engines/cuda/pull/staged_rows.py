"""Rows that this process gathers for a device: a piece at a time, through page-locked buffers that go round."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from forebay.core.source import Rows, Source, row_count
from forebay.core.spec import HOST_ALIGNMENT, Array, ArraySpec, align
from forebay.engines.cuda.copy_plan import Place
from forebay.engines.cuda.driver import Device, Stream, address_of
from forebay.engines.cuda.staging_buffers import Staging

__all__ = ["Stage"]

PIECE_NBYTES = 8 << 20  # gathered at a time


class Stage:
    """Gathers rows of a source and sends them to their places; any number of threads at once."""

    def __init__(self, device: Device, source: Source, *, threads: int) -> None:
        self._source = source
        self._row_nbytes = sum(align(spec.nbytes, HOST_ALIGNMENT) for spec in source.specs)
        # Two a thread: one is being filled while the other is on its way.
        self._staging = Staging(device, buffers=2 * threads + 2, nbytes=max(PIECE_NBYTES, self._row_nbytes))

    def send(self, stream: Stream, places: Sequence[Place], held: Sequence[ArraySpec], rows: Rows) -> None:
        """Queue the rows on the stream, as they are held there; returns when all are gathered."""
        for start, piece in _pieces(rows, max(1, self._staging.nbytes // max(1, self._row_nbytes))):
            buffer = self._staging.take()
            try:
                targets = _targets(buffer[0].buffer, self._source.specs, row_count(piece))
                self._source.gather(piece, targets)
                for target, place, spec in zip(targets, places, held, strict=True):
                    _upload(stream, _narrowed(target, spec), place, start)
            finally:
                self._staging.give_back(buffer, stream)

    def close(self) -> None:
        """All copies must be done."""
        self._staging.close()


def _pieces(rows: Rows, most: int) -> Iterator[tuple[int, Rows]]:
    for start in range(0, row_count(rows), most):
        if isinstance(rows, slice):
            yield start, slice(rows.start + start, min(rows.start + start + most, rows.stop))
        else:
            yield start, rows[start : start + most]


def _targets(buffer: Any, specs: Sequence[ArraySpec], rows: int) -> list[Array]:
    targets, offset = [], 0
    for spec in specs:
        targets.append(np.ndarray(spec.batch_shape(rows), spec.dtype, buffer=buffer, offset=offset))
        offset += align(targets[-1].nbytes, HOST_ALIGNMENT)
    return targets


def _narrowed(target: Array, spec: ArraySpec) -> Array:
    """The same numbers as they are held, at the beginning of the same memory; too large ones as the device has them."""
    if target.dtype == spec.dtype:
        return target
    narrow: Array = target.reshape(-1).view(spec.dtype)[: target.size].reshape(target.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        narrow[...] = target
    return narrow


def _upload(stream: Stream, target: Array, place: Place, start: int) -> None:
    """Rows that lie side by side on the host to their places on the device, a batch at a time where there are gaps."""
    address, rows, row_nbytes = address_of(target), len(target), place.row_nbytes
    at = start
    while row_nbytes and at < start + rows:
        batch_end = (at // place.batch_rows + 1) * place.batch_rows
        stop = start + rows if place.packed else min(start + rows, batch_end)
        (pointer,) = place.addresses(np.array([at]))
        stream.upload(int(pointer), address + (at - start) * row_nbytes, (stop - at) * row_nbytes)
        at = stop

"""The order programs of a feed, and the device tables that these programs read."""

import threading
from collections.abc import Callable
from contextlib import closing

import numpy as np

from forebay.core.spec import Array
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.memory import PageLockedMemory
from forebay.engines.cuda.order_program import assemble
from forebay.order.device_steps import DeviceSteps, step_tables

__all__ = ["OrderTables"]

STEP_NBYTES = 8 << 20  # bytes per upload; a table is uploaded in several steps, so that the page-locked buffer is small
CACHED_PROGRAMS = 2  # programs that `OrderTables` keeps: those of the current epoch and the next epoch


class OrderTables:
    """Uploads the tables of an order at first use, and assembles its programs.

    Several threads may use it.
    """

    def __init__(self, engine: CudaEngine, *, report: Callable[[str, str, str], None]) -> None:
        self._engine, self._report = engine, report
        self._tables: dict[int, tuple[Array, int, object]] = {}  # by id: the table, its device pointer, its owner
        self._programs: list[tuple[DeviceSteps, Array]] = []
        self._failed = False
        self._lock = threading.Lock()

    def program(self, steps: DeviceSteps) -> Array | None:
        """Return the program of these steps; None if the upload of a table has failed."""
        for known_steps, program in self._programs:
            if known_steps is steps:
                return program
        with self._lock:
            if self._failed or not self._upload_tables(steps):
                return None
            program = assemble(steps, lambda table: self._tables[id(table)][1])
            # Replace the list instead of changing it, because other threads read it without the lock.
            self._programs = [*self._programs[1 - CACHED_PROGRAMS :], (steps, program)]
            return program

    def close(self) -> None:
        """Release the device memory. All kernels must be done."""
        self._programs = []
        self._tables.clear()

    def _upload_tables(self, steps: DeviceSteps) -> bool:
        """Upload tables that are not on the device yet. Return False if an upload fails."""
        for table in step_tables(steps):
            if id(table) not in self._tables:
                try:
                    self._tables[id(table)] = (table, *self._upload(table))
                except Exception as error:  # not fatal: the host can compute row numbers
                    self._failed = True
                    self._report("row numbers", "host", f"the tables of the order could not be uploaded: {error}")
                    return False
        return True

    def _upload(self, table: Array) -> tuple[int, object]:
        """Copy a table to the device through a page-locked buffer. Return its pointer and owner."""
        table_bytes = np.ascontiguousarray(table).view(np.uint8)
        pointer, owner = self._engine.allocate(max(1, len(table_bytes)))
        device, stream = self._engine.device, self._engine.upload_stream()
        with device, closing(PageLockedMemory(device, min(len(table_bytes), STEP_NBYTES))) as host:
            buffer = np.frombuffer(host.buffer, np.uint8)
            for start in range(0, len(table_bytes), STEP_NBYTES):
                step = table_bytes[start : start + STEP_NBYTES]
                buffer[: len(step)] = step
                stream.upload(pointer + start, host.address, len(step))
                stream.wait()  # because kernels on all streams read the table, and the next step overwrites the buffer
            del buffer
        return pointer, owner

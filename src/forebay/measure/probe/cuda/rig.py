"""`Rig`: the streams and buffers that all measurements of a GPU share."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from forebay.core.c_functions import address_of
from forebay.core.spec import Array
from forebay.engines.cuda.driver import Device, Stream
from forebay.measure.probe.timing import WINDOW_NBYTES, Buffers

__all__ = ["Rig", "open_rig", "page_locked"]


class Rig:
    """A device with two streams and two buffers of `WINDOW_NBYTES`, and the host buffers."""

    def __init__(self, device: Device, buffers: Buffers, cleanup: ExitStack) -> None:
        self.device, self.buffers = device, buffers
        self.source, self.target = address_of(buffers.source), address_of(buffers.target)  # host addresses
        self.inbound, self.outbound = (self._allocate_buffer(cleanup) for _ in range(2))  # device addresses
        self.stream, self.other_stream = (self._open_stream(cleanup) for _ in range(2))

    def upload(self) -> None:
        """Queue copies of the whole source, window by window, into the same device buffer."""
        for offset in range(0, len(self.buffers.source), WINDOW_NBYTES):
            self.stream.upload(self.inbound, self.source + offset, WINDOW_NBYTES)

    def download(self, stream: Stream) -> None:
        """Queue copies from the device to the target. `upload` copies the same number of bytes."""
        for _ in range(0, len(self.buffers.source), WINDOW_NBYTES):
            stream.download(self.target, self.outbound, WINDOW_NBYTES)

    def wait(self) -> None:
        self.stream.wait()
        self.other_stream.wait()

    def _allocate_buffer(self, cleanup: ExitStack) -> int:
        pointer = self.device.allocate(WINDOW_NBYTES)
        cleanup.callback(self.device.free, pointer)
        return pointer

    def _open_stream(self, cleanup: ExitStack) -> Stream:
        stream = Stream(self.device, high_priority=True)
        cleanup.callback(stream.close)
        cleanup.callback(stream.wait)
        return stream


@contextmanager
def open_rig(device: Device, buffers: Buffers) -> Iterator[Rig]:
    """Make a rig, and release its streams and device buffers at the end."""
    with device, ExitStack() as cleanup:
        yield Rig(device, buffers, cleanup)


@contextmanager
def page_locked(rig: Rig, *arrays: Array) -> Iterator[None]:
    """Page-lock the arrays; at the end, wait for all copies and unlock the arrays."""
    with ExitStack() as cleanup:
        for array in arrays:
            rig.device.page_lock(address_of(array), array.nbytes)
            cleanup.callback(rig.device.page_unlock, address_of(array))
        cleanup.callback(rig.wait)
        yield

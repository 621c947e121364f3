"""What GPU figures are measured with: two streams, two places on the device; all given back at the end."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from forebay.core.spec import Array
from forebay.engines.cuda.driver import Device, Stream, address_of
from forebay.measure.probe.timing import WINDOW_NBYTES, Buffers

__all__ = ["Rig", "locked", "open_rig"]


class Rig:
    """One device beside the host memory of the other figures."""

    def __init__(self, device: Device, buffers: Buffers, cleanup: ExitStack) -> None:
        self.device, self.buffers = device, buffers
        self.source, self.target = address_of(buffers.source), address_of(buffers.target)
        self.inbound, self.outbound = (self._place(cleanup) for _ in range(2))
        self.stream, self.other_stream = (self._stream(cleanup) for _ in range(2))

    def upload(self) -> None:
        """Queue the whole source, a window at a time, to the same place."""
        for offset in range(0, len(self.buffers.source), WINDOW_NBYTES):
            self.stream.upload(self.inbound, self.source + offset, WINDOW_NBYTES)

    def download(self, stream: Stream) -> None:
        """Queue as many bytes the other way."""
        for _ in range(0, len(self.buffers.source), WINDOW_NBYTES):
            stream.download(self.target, self.outbound, WINDOW_NBYTES)

    def wait(self) -> None:
        self.stream.wait()
        self.other_stream.wait()

    def _place(self, cleanup: ExitStack) -> int:
        pointer = self.device.allocate(WINDOW_NBYTES)
        cleanup.callback(self.device.free, pointer)
        return pointer

    def _stream(self, cleanup: ExitStack) -> Stream:
        stream = Stream(self.device, urgent=True)
        cleanup.callback(stream.close)
        cleanup.callback(stream.wait)
        return stream


@contextmanager
def open_rig(device: Device, buffers: Buffers) -> Iterator[Rig]:
    with device, ExitStack() as cleanup:
        yield Rig(device, buffers, cleanup)


@contextmanager
def locked(rig: Rig, *arrays: Array) -> Iterator[None]:
    """Page-locked for a while; what still reads or writes them is waited for first."""
    with ExitStack() as cleanup:
        for array in arrays:
            rig.device.lock(address_of(array), array.nbytes)
            cleanup.callback(rig.device.unlock, address_of(array))
        cleanup.callback(rig.wait)
        yield

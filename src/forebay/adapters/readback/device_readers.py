"""`DeviceReaders`: one `DeviceReader` for each GPU. Its first use imports the CUDA bindings."""

from importlib import import_module
from typing import Any

from forebay.errors import FrameworkError

__all__ = ["DeviceReaders"]


class DeviceReaders:
    """The readers of all GPUs. The first result on a GPU creates its reader."""

    def __init__(self, max_copies: int) -> None:
        self._max_copies = max_copies  # pending copies at a time, for each GPU
        self._readers: dict[int, Any] = {}  # by index of the GPU

    def reader_for(self, index: int) -> Any:
        """Return the `DeviceReader` of the GPU with this index."""
        if index not in self._readers:
            self._readers[index] = _cuda_module().DeviceReader(index, self._max_copies)
        return self._readers[index]

    def close(self) -> None:
        while self._readers:
            self._readers.popitem()[1].close()


def _cuda_module() -> Any:
    try:
        return import_module("forebay.adapters.readback.cuda")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "cuda":
            raise
        raise FrameworkError(
            f"reading results back from a GPU needs {error.name!r}, which is not installed. Run: pip install "
            "'forebay[cu13]' (or 'forebay[cu12]' for CUDA 12).",
            name=error.name,
        ) from error

"""`DeviceDecoder` decodes the JPEG images of a group into device memory."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.encoded_images import EncodedImages
from forebay.core.spec import Array
from forebay.engines.cuda.driver import Event, Stream
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.nvjpeg import JpegHeader, Nvjpeg

__all__ = ["DecodedImages", "DeviceDecoder"]

MAX_DECODED_NBYTES = 512 << 20  # bytes of decoded images, unless one image is larger
MAX_FAILURES = 32  # calls of nvJPEG for one group; one file among 256 costs 9. The host decodes the rest
_JPEG_START, _JPEG_END = b"\xff\xd8", b"\xff\xd9"
_ALIGNMENT = 256  # bytes; of the first pixel of an image


@dataclass(frozen=True, slots=True)
class DecodedImages:
    """Decoded images in device memory, before their EXIF orientation is applied.

    Each array has one element per image. The channels of a pixel follow each other.
    """

    positions: Array  # indices of the rows in the group
    pointers: Array  # device addresses of the first pixels
    heights: Array
    widths: Array
    orientations: Array  # of EXIF, 1 to 8

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, which: Any) -> "DecodedImages":
        leaves = self.positions, self.pointers, self.heights, self.widths, self.orientations
        return DecodedImages(*(leaf[which] for leaf in leaves))


class DeviceDecoder:
    """Decodes JPEG images on one stream. One thread may use it at a time.

    Images that are decoded later overwrite earlier ones. The decoder waits until the stream has read the earlier ones.
    """

    def __init__(self, engine: CudaEngine, images: EncodedImages, channels: int) -> None:
        self._engine, self._images, self._channels = engine, images, channels
        self._nvjpeg = Nvjpeg(is_gray=channels == 1)
        self._were_read = Event(engine.device)
        self._nbytes = self._pointer = 0
        self._owner: Any = None

    def decode(self, contents: Sequence[bytes | None], stream: Stream) -> Iterator[DecodedImages]:
        """Decode the images in several parts, and yield each part.

        The host must decode the images whose positions are in no part. Before the caller requests the next part, it
        must queue all work that reads the current part on `stream`.

        If nvJPEG fails for one image of a call, it fails for all of them. The images are then decoded in halves.
        """
        positions, encoded, headers = self._parse(contents)
        if not positions:
            return
        heights, widths, orientations = np.array(headers, np.int64).T
        nbytes = -(-heights * widths * self._channels // _ALIGNMENT) * _ALIGNMENT
        parts, failures = list(_split(nbytes))[::-1], 0
        while parts and failures < MAX_FAILURES:
            part = parts.pop()
            ends = np.cumsum(nbytes[part])
            self._reserve(int(ends[-1]))
            pointers = self._pointer + ends - nbytes[part]
            is_decoded = self._nvjpeg.decode(encoded[part], pointers, widths[part] * self._channels, stream.handle)
            if is_decoded:
                turns = orientations[part] if self._images.upright else np.ones(len(pointers), np.int64)
                yield DecodedImages(np.array(positions[part]), pointers, heights[part], widths[part], turns)
            self._were_read.record(stream)  # after a failure too: nvJPEG may have queued kernels that write
            failures += not is_decoded
            if not is_decoded and len(pointers) > 1:  # nvJPEG does not say which image failed
                middle, stop = part.start + len(pointers) // 2, part.start + len(pointers)
                parts += [slice(middle, stop), slice(part.start, middle)]

    def close(self) -> None:
        """Free the memory. All queued work must be done."""
        with ExitStack() as stack:
            stack.callback(self._were_read.close)
            stack.callback(self._nvjpeg.close)
            self._owner, self._nbytes = None, 0

    def _reserve(self, nbytes: int) -> None:
        """Wait until no kernel reads the memory, and make it large enough."""
        self._were_read.wait()
        if nbytes > self._nbytes:
            self._owner, self._nbytes = None, 0
            self._pointer, self._owner = self._engine.allocate(nbytes)
            self._nbytes = nbytes

    def _parse(self, contents: Sequence[bytes | None]) -> tuple[list[int], list[bytes], list[JpegHeader]]:
        """Return positions, contents and headers of the images that the device decodes.

        A file without an end marker is incomplete, which the hardware does not report.
        """
        positions, encoded, headers = [], [], []
        parse, max_pixels = self._nvjpeg.parse, self._images.max_pixels
        for position, content in enumerate(contents):
            if content is None or content[:2] != _JPEG_START or content[-2:] != _JPEG_END:
                continue
            header = parse(content)
            if header is not None and 0 < header.height * header.width <= max_pixels:
                positions.append(position)
                encoded.append(content)
                headers.append(header)
        return positions, encoded, headers


def _split(nbytes: Array) -> Iterator[slice]:
    """Yield parts of at most MAX_DECODED_NBYTES; a larger image is a part of its own."""
    start, total = 0, 0
    for position, image_nbytes in enumerate(nbytes.tolist()):
        if position > start and total + image_nbytes > MAX_DECODED_NBYTES:
            yield slice(start, position)
            start, total = position, 0
        total += image_nbytes
    yield slice(start, len(nbytes))

"""`DeviceDecoder` decodes JPEG images on the device with nvImageCodec."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap, zip_longest
from types import ModuleType
from typing import Any

from forebay.core.encoded_images import EncodedImages
from forebay.engines.cuda.driver import Stream
from forebay.errors import FrameworkError

__all__ = ["DecodedImage", "DeviceDecoder", "import_nvimgcodec"]

MAX_DECODED_NBYTES = 512 << 20  # bytes of the images of a decoder, unless one image is larger
# The share of images that the decoder gives to the hardware engines; the multiprocessors decode the others.
HARDWARE_LOAD = 0.95
_JPEG_START = b"\xff\xd8"


def import_nvimgcodec() -> ModuleType:
    """Import nvImageCodec, or raise FrameworkError."""
    try:
        from nvidia import nvimgcodec  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise FrameworkError(
            "decoder='nvimgcodec' needs nvImageCodec, which is not installed. Run: pip install "
            "'forebay[images-cu13]' (for CUDA 13). Or pass decoder='auto'.",
            name="nvidia.nvimgcodec",
        ) from error
    module: ModuleType = nvimgcodec
    return module


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """An image in device memory, with its channels interleaved."""

    position: int  # of the row in the group
    pointer: int
    height: int
    width: int
    row_stride: int  # bytes


class DeviceDecoder:
    """Decodes JPEG images on one stream. One thread may use it at a time.

    The memory of decoded images is reused by the next call, whose work comes later on the same stream. It is freed with
    the decoder, or when it would exceed MAX_DECODED_NBYTES, because a kernel may still read an image when Python drops
    it.
    """

    def __init__(self, device_index: int, images: EncodedImages, channels: int) -> None:
        self._nvimgcodec = nvimgcodec = import_nvimgcodec()
        kinds = nvimgcodec.BackendKind
        backends = [
            nvimgcodec.Backend(kinds.HW_GPU_ONLY, load_hint=HARDWARE_LOAD),
            nvimgcodec.Backend(kinds.GPU_ONLY),
            nvimgcodec.Backend(kinds.HYBRID_CPU_GPU),
        ]
        self._decoder = nvimgcodec.Decoder(device_id=device_index, backends=backends)
        color = nvimgcodec.ColorSpec.GRAY if channels == 1 else nvimgcodec.ColorSpec.SRGB
        self._params = nvimgcodec.DecodeParams(apply_exif_orientation=images.upright, color_spec=color)
        self._max_pixels, self._channels = images.max_pixels, channels
        self._buffers: list[Any] = []  # all images that were decoded; their memory is reused

    def decode(self, contents: Sequence[bytes | None], stream: Stream) -> Iterator[list[DecodedImage]]:
        """Decode images, some at a time. Positions that never come must be decoded by the host.

        The consumer must queue all work that reads some images on `stream` before it asks for the next ones.
        """
        for positions, code_streams in self._parts(contents):
            decoded = self._decode_part(code_streams, stream)
            yield [
                _describe(position, image)
                for position, image in zip(positions, decoded, strict=True)
                if image is not None and image.num_channels == self._channels
            ]
            del decoded  # so that the next part can free the memory

    def _decode_part(self, code_streams: list[Any], stream: Stream) -> list[Any]:
        """Decode images into the memory of earlier images, and those for which there is none into new memory."""
        if self._nbytes_with(code_streams) > MAX_DECODED_NBYTES:
            stream.wait()  # a kernel may still read the images
            self._buffers.clear()
        count = min(len(code_streams), len(self._buffers))
        reused, new = code_streams[:count], code_streams[count:]
        decoded: list[Any] = []
        if reused:
            buffers = self._buffers[:count]
            if any(map(self._is_larger, reused, buffers)):
                stream.wait()  # the decoder frees the memory of an image to replace it by a larger one
            decoded += self._run(reused, stream, images=buffers)
        if new:
            images = self._run(new, stream, images=None)
            self._buffers += [image for image in images if image is not None]
            decoded += images
        return decoded

    def _run(self, code_streams: list[Any], stream: Stream, *, images: list[Any] | None) -> list[Any]:
        run = self._decoder.decode
        decoded: list[Any] = run(code_streams, images=images, params=self._params, cuda_stream=stream.handle)
        return decoded

    def _nbytes_with(self, code_streams: Sequence[Any]) -> int:
        """Return the bytes of all buffers after these images. A buffer keeps the size of its largest image."""
        sizes = zip_longest(map(self._nbytes, code_streams), (image.capacity for image in self._buffers), fillvalue=0)
        return sum(starmap(max, sizes))

    def _is_larger(self, code_stream: Any, image: Any) -> bool:
        return bool(self._nbytes(code_stream) > image.capacity)

    def _nbytes(self, code_stream: Any) -> int:
        return int(code_stream.height * code_stream.width * self._channels)

    def _parts(self, contents: Sequence[bytes | None]) -> Iterator[tuple[list[int], list[Any]]]:
        """Yield positions and code streams of images that take at most MAX_DECODED_NBYTES together."""
        positions: list[int] = []
        code_streams: list[Any] = []
        nbytes = 0
        for position, content in enumerate(contents):
            code_stream = self._open(content)
            if code_stream is None:
                continue
            image_nbytes = self._nbytes(code_stream)
            if positions and nbytes + image_nbytes > MAX_DECODED_NBYTES:
                yield positions, code_streams
                positions, code_streams, nbytes = [], [], 0
            positions.append(position)
            code_streams.append(code_stream)
            nbytes += image_nbytes
        if positions:
            yield positions, code_streams

    def _open(self, content: bytes | None) -> Any | None:
        """Return the code stream of a JPEG image, or None if the host must decode or refuse it."""
        if content is None or content[:2] != _JPEG_START:
            return None
        try:
            code_stream = self._nvimgcodec.CodeStream(content)
            is_small = code_stream.height * code_stream.width <= self._max_pixels
            is_usual = code_stream.num_channels in (1, 3)  # four channels are inks, whose conversion differs
        except Exception:  # the host raises a clear error for a damaged file
            return None
        return code_stream if is_small and is_usual else None


def _describe(position: int, image: Any) -> DecodedImage:
    interface = image.__cuda_array_interface__
    height, width, *channels = interface["shape"]
    strides = interface.get("strides") or (width * (channels[0] if channels else 1),)
    return DecodedImage(position, interface["data"][0], height, width, strides[0])

"""Image files, one a row, decoded by Pillow when the row is asked for.

Opening looks at the first file's header only; every other file is compared with it when its turn comes. Pillow lets go
of the GIL while it decodes and resizes, so threads help.
"""

from collections.abc import Sequence
from pathlib import Path

from forebay.core.rows import Rows
from forebay.core.source import AbstractSource, MemoryRegion
from forebay.core.spec import Array, Structure, Tree
from forebay.errors import SourceChangedError
from forebay.sources.files.mapped import PathName, check_is_file
from forebay.sources.files.match_spec import fit_spec
from forebay.sources.formats.image_decode import ImageDecoder

__all__ = ["ImageSource", "open_image"]


class _OpenImage:
    """Opens one image, or (`open_many`) many as one source: a source a row would cost more than the row."""

    def __call__(
        self,
        path: PathName,
        *,
        spec: Tree | None = None,
        size: tuple[int, int] | None = None,
        channels: int | None = None,
    ) -> "ImageSource":
        """Open one image as a source of one row: uint8, (height, width, channels), a lone array.

        Gray images have 1 channel, colour images 3, those with transparency 4; the first file decides for all, or
        `channels=1`, `3` or `4` converts. `size=(height, width)` resizes (bilinear, antialiased). Of an animation the
        first frame is taken; orientation tags are not applied.
        """
        return self.open_many([path], spec=spec, size=size, channels=channels)

    def open_many(
        self,
        paths: Sequence[PathName],
        *,
        spec: Tree | None = None,
        size: tuple[int, int] | None = None,
        channels: int | None = None,
    ) -> "ImageSource":
        """Open many images as one source, a row each; see `open_image`."""
        return ImageSource([Path(path) for path in paths], spec=spec, size=size, channels=channels)


open_image = _OpenImage()


class ImageSource(AbstractSource):
    """Images of one size and number of channels, a row each."""

    immutable = True  # what lies in a file stays as it is

    def __init__(
        self, paths: Sequence[Path], *, spec: Tree | None, size: tuple[int, int] | None, channels: int | None
    ) -> None:
        self._paths = paths
        check_is_file(paths[0])
        self._decoder = ImageDecoder(str(paths[0]), paths[0], size=size, channels=channels)
        self.specs = (self._decoder.spec,)
        self.structure = fit_spec(paths[0], self.specs, Structure(None), spec)

    def __len__(self) -> int:
        return len(self._paths)

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        (images,) = out
        numbers = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        for place, number in enumerate(numbers):
            self._decode(self._paths[number], images[place])

    def memory(self) -> list[MemoryRegion]:
        """Nothing: the rows lie in no memory until they are decoded."""
        return []

    def close(self) -> None:
        """Files are opened for one row at a time: nothing to give back."""

    def _decode(self, path: Path, out: Array) -> None:
        if not path.is_file():
            raise SourceChangedError(f"{path} was there when it was opened and is gone now. Make the feed again.")
        self._decoder.decode(str(path), path, out)

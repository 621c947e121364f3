"""Image files as a source: one file is one row.

Opening reads only the header of the first file. Pillow decodes a file when its row is gathered, and Forebay then
compares its size and channels with the first file. Pillow releases the GIL while it decodes and resizes, so several
threads decode in parallel.
"""

from collections.abc import Sequence
from pathlib import Path

from forebay.core.rows import Rows, row_numbers
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, Structure, Tree
from forebay.errors import SourceChangedError
from forebay.sources.files.mapped import PathName, validate_file
from forebay.sources.files.match_spec import match_spec
from forebay.sources.formats.image_decode import ImageDecoder

__all__ = ["ImageSource", "open_image"]


class _ImageOpener:
    """Opens one image, or many images as one source (see `MultiFileOpener`).

    A file is only one row, so one source per file would be too slow.
    """

    def __call__(
        self,
        path: PathName,
        *,
        spec: Tree | None = None,
        size: tuple[int, int] | None = None,
        channels: int | None = None,
    ) -> "ImageSource":
        """Open one image as a source of one row.

        The row is a single uint8 array of shape (height, width, channels).

        Gray images have 1 channel, color images 3, images with transparency 4. All files must have the size and the
        channels of the first file, unless an option converts them: `size=(height, width)` resizes images (bilinear,
        antialiased), and `channels=1`, `3` or `4` converts channels. An animation becomes its first frame. Orientation
        tags are ignored.
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
        """Open many images as one source with one row per image.

        `__call__` describes the options.
        """
        return ImageSource([Path(path) for path in paths], spec=spec, size=size, channels=channels)


open_image = _ImageOpener()


class ImageSource(AbstractSource):
    """A source whose rows are images of one size and number of channels."""

    immutable = True

    def __init__(
        self, paths: Sequence[Path], *, spec: Tree | None, size: tuple[int, int] | None, channels: int | None
    ) -> None:
        self._paths = paths
        validate_file(paths[0])
        self._decoder = ImageDecoder(str(paths[0]), paths[0], size=size, channels=channels)
        self.specs = (self._decoder.spec,)
        self.structure = match_spec(paths[0], self.specs, Structure(None), spec)

    def __len__(self) -> int:
        return len(self._paths)

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        (images,) = out
        for position, number in enumerate(row_numbers(rows)):
            self._decode(self._paths[number], images[position])

    def _decode(self, path: Path, out: Array) -> None:
        if not path.is_file():
            raise SourceChangedError(
                f"{path} is missing now, or is no longer a file. Create the pipeline again with files that exist."
            )
        self._decoder.decode(str(path), path, out)

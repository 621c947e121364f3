"""Image files as a source: one file is one row.

Opening reads only the header of the first file. A decoder thread decodes a file when its row is gathered, and then
compares its size and channels with the first file.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from forebay.core.decision import Decision
from forebay.core.rows import Rows, row_numbers
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, ArraySpec, Structure, Tree
from forebay.errors import SourceChangedError, SourceError
from forebay.sources.decoder_threads import decode_rows, decoder_thread_count
from forebay.sources.files.columns import dict_structure
from forebay.sources.files.mapped import PathName, validate_file
from forebay.sources.files.match_spec import match_spec
from forebay.sources.files.paths import Paths, expand_paths, has_url, stamp_files
from forebay.sources.formats.image_decode import ImageDecoder, ImageOptions
from forebay.sources.formats.image_labels import ImageLabel, LabelledFiles, label_files
from forebay.sources.formats.jpeg_decode import make_image_decoder, read_content

__all__ = ["ImageSource", "open_image", "open_labelled_images"]


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
        decoder: str = "pillow",
    ) -> "ImageSource":
        """Open one image as a source of one row.

        The row is a single uint8 array of shape (height, width, channels).

        Gray images have 1 channel, color images 3, images with transparency 4. All files must have the size and the
        channels of the first file, unless an option converts them: `size=(height, width)` resizes images, and
        `channels=1`, `3` or `4` converts channels. An animation becomes its first frame. Orientation tags are ignored.
        `decoder="simplejpeg"` decodes JPEG files faster, with slightly different pixels if it resizes them.
        """
        return self.open_many([path], spec=spec, size=size, channels=channels, decoder=decoder)

    def open_many(
        self,
        paths: Sequence[PathName],
        *,
        spec: Tree | None = None,
        size: tuple[int, int] | None = None,
        channels: int | None = None,
        decoder: str = "pillow",
    ) -> "ImageSource":
        """Open many images as one source with one row per image.

        `__call__` describes the options.
        """
        files = LabelledFiles([Path(path) for path in paths])
        image_decoder = _open_first(files.paths[0], ImageOptions(size, channels), decoder)
        structure = match_spec(files.paths[0], (image_decoder.spec,), Structure(None), spec)
        return ImageSource(files, image_decoder, structure, decoder)


open_image = _ImageOpener()


def open_labelled_images(
    paths: Paths,
    options: ImageOptions,
    *,
    label: ImageLabel | None,
    class_names: Sequence[str] | None,
    decoder: str,
) -> "ImageSource":
    """Open images as a source of rows `{"image": ..., "label": ...}`; without `label`, of rows `{"image": ...}`."""
    options.validate()
    if has_url(paths):
        raise SourceError(
            f"from_images reads local files, and {str(paths)[:200]!r} is a URL. Download the images, or store them in "
            "tar archives and open these with from_files."
        )
    files = label_files(expand_paths(paths), label, class_names)
    image_decoder = _open_first(files.paths[0], options, decoder)
    names = ["image"] if files.labels is None else ["image", "label"]
    return ImageSource(files, image_decoder, dict_structure(names), decoder)


class ImageSource(AbstractSource):
    """A source of images with one size and number of channels, and with labels if the files have them."""

    immutable = decodes_rows = True

    def __init__(self, files: LabelledFiles, decoder: ImageDecoder, structure: Structure, decoder_name: str) -> None:
        self._paths, self._labels, self._left_out = files.paths, files.labels, files.left_out
        self.class_names = files.class_names
        self._decoder, self.structure = decoder, structure
        self.specs = (decoder.spec,) if files.labels is None else (decoder.spec, ArraySpec((), files.labels.dtype))
        self.read_decision = decoder.decision
        if decoder_name == "nvimgcodec":
            self.encoded_images = decoder.encoded_images(self._read_encoded)
            why = f"decodes and resizes on the device; images that it refuses: {decoder.decision.why}"
            self.read_decision = Decision("decoder", "nvimgcodec", why)
        self.identify = partial(_identify_images, files, decoder)

    def __len__(self) -> int:
        return len(self._paths)

    def counters(self) -> dict[str, int]:
        return self._decoder.counters()

    def decisions(self) -> list[Decision]:
        threads = decoder_thread_count()
        decisions = [Decision("decoder threads", str(threads), "one for each core; together they decode one group")]
        if self._left_out:
            why = f"their classes are not in class_names, which has {len(self.class_names)} names"
            decisions.append(Decision("images left out", str(self._left_out), why))
        return decisions

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        images = out[0]
        decode_rows(lambda position, number: self._decode(self._paths[number], images[position]), row_numbers(rows))
        if self._labels is not None:
            out[1][...] = self._labels[rows]

    def gather_leaves(self, leaves: Sequence[int], rows: Rows) -> list[Array]:
        """Return some leaves. Labels need no decoding."""
        if 0 in leaves or self._labels is None:
            return super().gather_leaves(leaves, rows)
        return [self._labels[rows] for _ in leaves]

    def _decode(self, path: Path, out: Array) -> None:
        _check_exists(path)
        self._decoder.decode(str(path), path, out)

    def _read_encoded(self, rows: Rows) -> list[bytes | None]:
        """Return the content of the file of each row; None for files that only the decoder of the host may read."""
        numbers = row_numbers(rows)
        contents: list[bytes | None] = [None] * len(numbers)

        def read(position: int, number: int) -> None:
            _check_exists(self._paths[number])
            content = read_content(self._paths[number])
            contents[position] = content if isinstance(content, bytes) else None

        decode_rows(read, numbers)
        return contents


def _check_exists(path: Path) -> None:
    if not path.is_file():
        raise SourceChangedError(
            f"{path} is missing now, or is no longer a file. Create the pipeline again with files that exist."
        )


def _identify_images(files: LabelledFiles, decoder: ImageDecoder) -> tuple[Any, ...]:
    return stamp_files(files.paths), files.labels, files.class_names, decoder.identify()


def _open_first(path: Path, options: ImageOptions, decoder: str) -> ImageDecoder:
    """Return a decoder, which takes the size and the channels that the options do not give from this file."""
    validate_file(path)
    return make_image_decoder(str(path), path, options, decoder)

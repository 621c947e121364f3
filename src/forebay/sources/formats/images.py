"""A source of images: a row is a decoded image, with its label if any.

The images are files, or are inside other files such as Parquet files (`image_containers`). When Forebay opens the
source, the first image determines the size and the channels of all rows, unless options set them. Decoder threads
decode an image when a feed gathers its row, and raise SourceError if its size or its channels differ.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from forebay.core.decision import Decision
from forebay.core.registry import load_image_container
from forebay.core.rows import Rows, row_array, row_numbers
from forebay.core.skipped_rows import SOURCE, ErrorLimit, SkippedRow, raise_unreadable
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, ArraySpec, Structure, Tree
from forebay.errors import SourceChangedError, SourceError, SpecError
from forebay.sources.decoder_threads import decode_rows, decoder_thread_count
from forebay.sources.files.columns import dict_structure
from forebay.sources.files.mapped import PathName
from forebay.sources.files.match_spec import match_spec
from forebay.sources.files.paths import Paths, expand_paths, format_suffix, has_url
from forebay.sources.formats.encoded_reader import EncodedReader
from forebay.sources.formats.image_decode import ImageDecoder
from forebay.sources.formats.image_labels import ImageLabel, NumberedLabels, number_labels
from forebay.sources.formats.image_options import ImageOptions
from forebay.sources.formats.image_rows import ContainedImages, ContainerOptions, ImageContainer, ImageFiles, ImageRows
from forebay.sources.formats.jpeg_decode import make_image_decoder
from forebay.sources.formats.random_boxes import ROW_VIEWS

__all__ = ["ImageSource", "ImageColumns", "open_image", "open_labelled_images"]


# Images. If the first 100 images are all damaged, opening the source fails even with an error limit: the path is
# probably wrong.
MAX_DAMAGED_AT_START = 100


class _ImageOpener:
    """Opens one image file, or many image files as one source.

    Because of `open_many`, this is a `MultiFileOpener`: Forebay opens all files in one call. A source for each file,
    and so for each row, would be slow.
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
        `channels=1`, `3` or `4` converts channels. Only the first frame of an animation is decoded. The EXIF
        orientation is ignored. `decoder="simplejpeg"` decodes JPEG files faster, with slightly different pixels if it
        resizes them.
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
        files = [Path(path) for path in paths]
        rows = ImageFiles(files)
        image_decoder = _make_decoder(rows, ImageOptions(size, channels), decoder)
        structure = match_spec(files[0], (image_decoder.spec,), Structure(None), spec)
        return ImageSource(rows, image_decoder, structure, decoder)


open_image = _ImageOpener()


@dataclass(frozen=True, slots=True)
class ImageColumns:
    """The options of `from_images` about columns, labels and damaged images."""

    column: str | None = None  # the column that has the images, for files that contain images
    label: ImageLabel | None = None  # where the labels are; None: the rows have no labels
    class_names: Sequence[str] | None = None  # names of the classes 0, 1, ...; images of other classes are left out
    max_held_nbytes: int | None = None  # budget for decompressed parts of files that contain images
    error_limit: ErrorLimit | None = None  # how many images may be damaged; None: a damaged image is an error

    def validate(self) -> None:
        """Raise SpecError for an argument of a wrong type."""
        if self.column is not None and not isinstance(self.column, str):
            raise SpecError(f"column={self.column!r} is not a name. Pass a str, such as 'image'.")
        if self.label is not None and not isinstance(self.label, str | Path) and not callable(self.label):
            raise SpecError(
                f"label={self.label!r} is unknown. Pass 'folder', the path of a manifest, a function of a path, or the "
                "name of a column."
            )


def open_labelled_images(paths: Paths, options: ImageOptions, columns: ImageColumns, decoder: str) -> "ImageSource":
    """Open images as a source of rows `{"image": ..., "label": ...}`; without labels, `{"image": ...}`."""
    options.validate()
    columns.validate()
    if has_url(paths):
        raise SourceError(
            f"from_images reads local files, and {str(paths)[:200]!r} is a URL. Download the images, or store them in "
            "tar archives and open these with from_files."
        )
    listed = _find_lmdb_files(paths)
    _refuse_folders(listed)
    rows = _open_rows(expand_paths(listed), columns)
    if len(rows) == 0:
        raise SourceError(f"{str(paths)[:200]!r} has no images. Pass files with at least one image.")
    labels = _read_labels(rows, columns)
    names = ["image"] if labels is None else ["image", "label"]
    image_decoder = _make_decoder(rows, options, decoder, columns.error_limit)
    return ImageSource(rows, image_decoder, dict_structure(names), decoder, labels, columns.error_limit)


def _find_lmdb_files(paths: Paths) -> list[PathName]:
    """Return the paths, with `data.mdb` instead of a folder that contains this LMDB file."""
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    files = [Path(os.path.expanduser(path)) / "data.mdb" for path in listed]  # noqa: PTH111 - Path.expanduser may fail
    return [file if file.is_file() else path for file, path in zip(files, listed, strict=True)]


def _refuse_folders(paths: Sequence[PathName]) -> None:
    for path in map(os.path.expanduser, paths):
        if Path(path).is_dir():
            flat, by_class = (str(Path(path, *parts)) for parts in (("*.jpg",), ("*", "*.jpg")))
            raise SourceError(
                f"{path} is a directory. Pass a glob of its images, such as {flat!r}, or {by_class!r} if it has a "
                "folder for each class."
            )


def _open_rows(files: list[Path], columns: ImageColumns) -> ImageRows:
    openers: list[Any] = [load_image_container(format_suffix(file)) for file in files]
    if all(opener is None for opener in openers):
        if columns.column is not None:
            raise SpecError(
                f"column={columns.column!r} is for files that contain images, such as .parquet, and {files[0]} is an "
                "image. Leave out column=."
            )
        return ImageFiles(files)
    if None in openers:
        raise SourceError(
            f"{files[openers.index(None)]} is an image, but other files contain images. Open them in two pipelines "
            "and join these with concat()."
        )
    options = ContainerOptions.of(columns.column, columns.max_held_nbytes)
    containers: list[ImageContainer] = []
    for file, opener in zip(files, openers, strict=True):
        containers.append(opener(file, options))
        held_nbytes = sum(container.held_nbytes for container in containers)
        options.budget.validate(f"{file} and the files before it are decompressed as a whole", held_nbytes)
    return ContainedImages(containers, options)


def _read_labels(rows: ImageRows, columns: ImageColumns) -> NumberedLabels | None:
    """Return the labels of the images as numbers, or None without `columns.label`.

    Remove the images whose class is not in `columns.class_names` from `rows`.
    """
    class_names = columns.class_names
    if columns.label is None:
        if class_names is not None:
            raise SpecError(
                "class_names= needs labels. Also pass label=: 'folder', a manifest, a function or a column."
            )
        return None
    found, stored_names = rows.read_labels(columns.label)
    if stored_names and class_names is not None:
        found = [stored_names[number] for number in found]
    labels = number_labels(_RowNames(rows), found, class_names)
    rows.keep(labels.kept)
    return replace(labels, class_names=labels.class_names or stored_names)


class ImageSource(AbstractSource):
    """A source of decoded images of one shape, with their labels if they have any."""

    immutable = decodes_rows = True

    def __init__(
        self,
        rows: ImageRows,
        decoder: ImageDecoder,
        structure: Structure,
        decoder_name: str,
        labels: NumberedLabels | None = None,
        error_limit: ErrorLimit | None = None,
    ) -> None:
        self.error_limit = error_limit
        self._rows, self._decoder, self.structure, self._labels = rows, decoder, structure, labels
        self.views = ROW_VIEWS if decoder.crops_at_random else 1  # row number r + v * images is view v of image r
        self.shuffle_blocks = rows.shuffle_blocks
        self.class_names = () if labels is None else labels.class_names
        self.specs = (decoder.spec,) if labels is None else (decoder.spec, ArraySpec((), labels.numbers.dtype))
        self.read_decision = decoder.decision
        if decoder_name == "auto" and decoder.takes_nearest:
            self.why_no_device_decoder = "interpolation='nearest', and a device resizes with a bilinear filter only"
        elif decoder_name == "auto":
            self.for_device_decoder = partial(ImageSource, rows, decoder, structure, "nvjpeg", labels, error_limit)
        if decoder_name == "nvjpeg":
            read_bytes = rows.read_bytes if error_limit is None else partial(_read_undamaged, rows)
            self._encoded_reader = EncodedReader(read_bytes)
            self.encoded_images = decoder.encoded_images(self._read_encoded)
            why = f"decodes and resizes on the device; images that it refuses: {decoder.decision.why}"
            self.read_decision = Decision("decoder", "nvjpeg", why)
        self.identify = partial(_identify_images, rows, labels, decoder)

    def __len__(self) -> int:
        return len(self._rows) * self.views

    @property
    def image_count(self) -> int:
        """The number of images."""
        return len(self._rows)

    @property
    def held_nbytes(self) -> int:
        return self._rows.held_nbytes

    def counters(self) -> dict[str, int]:
        return self._decoder.counters()

    def decisions(self) -> list[Decision]:
        threads = decoder_thread_count()
        decisions = [Decision("decoder threads", str(threads), "one for each core; together they decode one group")]
        if self._labels is not None and self._labels.left_out:
            why = f"their classes are not in class_names, which has {len(self.class_names)} names"
            decisions.append(Decision("images left out", str(self._labels.left_out), why))
        return [*decisions, *self._rows.decisions]

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        images, failed = out[0], list[SkippedRow]()

        def decode(position: int, number: int) -> None:
            try:
                self._decode(number, images[position])
            except SourceError as error:
                if self.error_limit is None or not _is_damage(error):
                    raise
                name = self._rows.describe(number % len(self._rows))
                failed.append(SkippedRow.of(position, SOURCE, error, name))

        decode_rows(decode, row_numbers(rows))
        if self._labels is not None:
            out[1][...] = self._labels.numbers[self._images_of(rows)]
        raise_unreadable(failed)

    def gather_leaves(self, leaves: Sequence[int], rows: Rows) -> list[Array]:
        """Return the leaves with these numbers. Decode images only if leaf 0 is requested."""
        if 0 in leaves or self._labels is None:
            return super().gather_leaves(leaves, rows)
        return [self._labels.numbers[self._images_of(rows)] for _ in leaves]

    def close(self) -> None:
        self._rows.close()

    def _decode(self, number: int, out: Array) -> None:
        image = number % len(self._rows)
        self._decoder.decode(self._rows.describe(image), self._rows.read(image), out, number)

    def _images_of(self, rows: Rows) -> Rows:
        """Return the numbers of the images that these rows show."""
        return rows if self.views == 1 else row_array(rows) % len(self._rows)

    def _read_encoded(self, rows: Rows) -> list[bytes | None]:
        """Return the encoded image of each row; None where only the host may decode."""
        return self._encoded_reader.read(row_numbers(self._images_of(rows)))


class _RowNames(Sequence[str]):
    """The names of all images for error messages. A name is made when needed."""

    def __init__(self, rows: ImageRows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self._rows.describe(number)


def _identify_images(rows: ImageRows, labels: NumberedLabels | None, decoder: ImageDecoder) -> tuple[Any, ...]:
    numbered = () if labels is None else (labels.numbers, labels.class_names)
    return rows.identify(), numbered, decoder.identify()


def _is_damage(error: SourceError) -> bool:
    """Return whether an error means a damaged image, not a changed file or short memory."""
    return not isinstance(error, SourceChangedError) and not isinstance(error.__cause__, MemoryError)


def _read_undamaged(rows: ImageRows, number: int) -> bytes | None:
    """Return an image's bytes; None if reading fails, so that the host reports the error."""
    try:
        return rows.read_bytes(number)
    except SourceError:
        return None


def _make_decoder(
    rows: ImageRows, options: ImageOptions, decoder: str, error_limit: ErrorLimit | None = None
) -> ImageDecoder:
    """Return a decoder for the size and the channels of the first image.

    `options` may set another size or number of channels. With an error limit, damaged images at the beginning are
    ignored.
    """
    first_error: SourceError | None = None
    for number in range(1 if error_limit is None else min(len(rows), MAX_DAMAGED_AT_START)):
        try:
            return make_image_decoder(rows.describe(number), rows.read(number), options, decoder)
        except SourceError as error:
            if error_limit is None or not _is_damage(error):
                raise
            first_error = first_error or error
    raise SourceError(
        f"none of the first {min(len(rows), MAX_DAMAGED_AT_START)} images can be decoded. Remove them, or correct the "
        f"path. The first error: {first_error}"
    ) from first_error

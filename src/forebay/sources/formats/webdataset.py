"""WebDataset archives as a source: one sample of a tar file is one row.

The files in an archive are its members. A sample is a group of members with the same name and different extensions,
such as `0001.jpg` and `0001.cls`. Forebay builds an index of the samples when it opens the archive, so rows can be read
in any order. It decodes images, `.npy` arrays and integers written as text. For all other members, the user passes a
function.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from forebay.core.rows import Rows, row_numbers
from forebay.core.source import AbstractSource, sum_counters
from forebay.core.spec import Array, ArraySpec, Tree, as_specs
from forebay.errors import SourceError, SpecError
from forebay.sources.decoder_threads import decode_rows
from forebay.sources.files.columns import dict_structure, validate_names
from forebay.sources.files.mapped import PathName, closed_error
from forebay.sources.files.match_spec import match_spec
from forebay.sources.formats.gzip_file import ReadableFile, open_maybe_gzip
from forebay.sources.formats.npy import MAX_HEADER_NBYTES, parse_header
from forebay.sources.formats.tar_index import Sample, TarMember, list_samples

__all__ = ["IMAGE_EXTENSIONS", "TarSource", "open_webdataset"]

MemberDecoders: TypeAlias = Mapping[str, Callable[[bytes], Any]]  # extension -> function from bytes to an array

IMAGE_EXTENSIONS = {"jpg", "jpeg", "png", "bmp", "gif", "tif", "tiff", "webp", "ppm", "pgm"}
_INTEGER_EXTENSIONS = {"cls", "cls2", "index", "inx", "id"}  # in WebDataset, these files contain an integer as text


def open_webdataset(
    path: PathName,
    *,
    spec: Tree | None = None,
    members: Sequence[str] | None = None,
    decode: MemberDecoders | None = None,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    decoder: str = "pillow",
    max_held_nbytes: int = 2**30,
) -> "TarSource":
    """Open one tar file as a source with one row per sample.

    A row is a dict from extension to array: `{"jpg": ..., "cls": ...}`.

    `members=["jpg", "cls"]` selects extensions. An image becomes a uint8 array of shape (height, width, channels); all
    rows have the same shape. `size=(height, width)` resizes images, `channels=` converts them, and
    `decoder="simplejpeg"` decodes JPEG images faster. `cls` becomes an int64 and `npy` an array.
    `decode={"json": function}` converts the bytes of a member to an array. Forebay decompresses a gzip archive into
    memory, up to `max_held_nbytes`.
    """
    file = open_maybe_gzip(path, max_held_nbytes)
    samples = list_samples(file)
    if not samples:
        raise SourceError(f"{path} has no samples. Write samples with members such as 0001.jpg and 0001.cls.")
    if members is None:
        members = list(samples[0].members) if spec is None else as_specs(spec)[1].paths
    decode = decode or {}
    validate_names(file.path, "member", [*members, *decode], list(samples[0].members))
    image_options = _ImageMemberOptions(size, channels, decoder)
    decoders = {
        extension: _make_decoder(file, samples[0], extension, decode.get(extension), image_options)
        for extension in members
    }
    return TarSource(file, samples, _TarOptions(decoders, spec, max_held_nbytes))


@dataclass(frozen=True, slots=True)
class _ImageMemberOptions:
    """Options of the members that are images."""

    size: tuple[int, int] | None
    channels: int | None
    decoder: str


@dataclass(frozen=True, slots=True)
class _TarOptions:
    """Options to convert samples to rows; `TarSource` needs them again to reopen the archive."""

    decoders: Mapping[str, "_Decoder"]  # extension -> decoder, in the order of the leaves of a row
    spec: Tree | None
    max_held_nbytes: int


class TarSource(AbstractSource):
    """A source whose rows are the samples of one archive."""

    immutable = True

    def __init__(self, file: ReadableFile, samples: Sequence[Sample], options: _TarOptions) -> None:
        extensions = list(options.decoders)
        _validate_samples(file, samples, extensions)
        self._decoders = list(options.decoders.values())
        self.specs = tuple(decoder.spec for decoder in self._decoders)
        self.structure = match_spec(file.path, self.specs, dict_structure(extensions), options.spec)
        self._image_decoders = [
            decoder.image_decoder for decoder in self._decoders if isinstance(decoder, _ImageMemberDecoder)
        ]
        self.decodes_rows = bool(self._image_decoders)
        self.read_decision = self._image_decoders[0].decision if self._image_decoders else None
        self._file: ReadableFile | None = file
        self._path, self._stamp = file.path, file.stamp  # the stamp changes when the file is rewritten
        self._samples, self._options = samples, options
        self._members = [[sample.members[extension] for extension in extensions] for sample in samples]

    def __len__(self) -> int:
        return len(self._members)

    @property
    def held_nbytes(self) -> int:
        return 0 if self._file is None else self._file.held_nbytes

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        file = self._file
        if file is None:
            raise closed_error(self._path)

        def decode_row(position: int, number: int) -> None:
            for decoder, member, leaf in zip(self._decoders, self._members[number], out, strict=True):
                data = file.read(member.offset, member.nbytes)
                decoder.decode(_describe_member(file, member), data, leaf[position : position + 1])

        if self.decodes_rows:
            decode_rows(decode_row, row_numbers(rows))
        else:  # to decode an array or a number takes less time than to wake a thread
            for position, number in enumerate(row_numbers(rows)):
                decode_row(position, number)

    def counters(self) -> dict[str, int]:
        return sum_counters(decoder.counters() for decoder in self._image_decoders)

    def close(self) -> None:
        self._file = None

    def reopener(self) -> Callable[[], AbstractSource]:
        """Return a function that reopens the archive.

        The function reuses the index, or builds a new one if the file has changed.
        """
        return self._reopen

    def _reopen(self) -> "TarSource":
        file = open_maybe_gzip(self._path, self._options.max_held_nbytes)
        samples = self._samples if file.stamp == self._stamp else list_samples(file)
        return TarSource(file, samples, self._options)


class _Decoder(Protocol):
    """Converts the bytes of a member to an array."""

    @property
    def spec(self) -> ArraySpec: ...
    def decode(self, name: str, data: bytes, row: Array) -> None:
        """Decode `data` into `row[0]`. `row` has length 1.

        Error messages use `name` for the member.
        """
        ...


def _make_decoder(
    file: ReadableFile,
    first_sample: Sample,
    extension: str,
    decode: Callable[[bytes], Any] | None,
    image_options: _ImageMemberOptions,
) -> _Decoder:
    """Return the decoder of an extension. The first sample determines shape and dtype."""
    member = first_sample.members[extension]
    name, data = _describe_member(file, member), file.read(member.offset, member.nbytes)
    suffix = extension.rpartition(".")[2]
    if decode is not None:
        return _FunctionDecoder(lambda _, data: decode(data), name, data)
    if suffix in IMAGE_EXTENSIONS:
        return _ImageMemberDecoder(name, data, image_options)
    if suffix == "npy":
        return _FunctionDecoder(_load_npy, name, data)
    if suffix in _INTEGER_EXTENSIONS:
        return _FunctionDecoder(_parse_integer, name, data)
    raise SourceError(
        f"{name} is no image, array or number. Choose other members with members=[...], or convert its bytes to an "
        f"array with decode={{{extension!r}: function}}."
    )


class _FunctionDecoder:
    """Decodes members by calling `function(name, data)`.

    The result for the first member determines the shape and dtype of all rows.
    """

    def __init__(self, function: Callable[[str, bytes], Any], first_name: str, first_data: bytes) -> None:
        self._function, self._first_name = function, first_name
        array = np.asarray(function(first_name, first_data))
        self.spec = ArraySpec(array.shape, array.dtype)
        self.spec.check(first_name)

    def decode(self, name: str, data: bytes, row: Array) -> None:
        array = np.asarray(self._function(name, data))
        if (array.shape, array.dtype) != (self.spec.shape, self.spec.dtype):
            actual_spec = ArraySpec(array.shape, array.dtype)
            raise SpecError(
                f"{name} becomes {actual_spec}, but {self._first_name} becomes {self.spec}. Give all rows one shape "
                "and dtype."
            )
        row[0] = array


class _ImageMemberDecoder:
    """Decodes members that are images."""

    def __init__(self, name: str, data: bytes, options: _ImageMemberOptions) -> None:
        # Imported here because only archives with images need Pillow.
        from forebay.sources.formats.image_options import ImageOptions
        from forebay.sources.formats.jpeg_decode import make_image_decoder

        image_options = ImageOptions(options.size, options.channels)
        self.image_decoder = make_image_decoder(name, data, image_options, options.decoder)
        self.spec = self.image_decoder.spec

    def decode(self, name: str, data: bytes, row: Array) -> None:
        self.image_decoder.decode(name, data, row[0])


def _load_npy(name: str, data: bytes) -> Array:
    header = parse_header(data[:MAX_HEADER_NBYTES], name, has_rows=False)
    try:
        array: Array = np.ndarray(header.shape, header.dtype, data, header.nbytes, order=header.order)
    except (TypeError, ValueError) as error:
        raise SourceError(f"{name} is damaged: {error}. Write or download the archive again.") from error
    # Rows use the byte order of this machine.
    return array.astype(header.dtype.newbyteorder("="), copy=False)


def _parse_integer(name: str, data: bytes) -> Any:
    try:
        return np.int64(int(data))
    except (ValueError, OverflowError) as error:
        raise SourceError(f"{name} is not a 64-bit integer: {data[:40]!r}. Convert it with decode=.") from error


def _validate_samples(file: ReadableFile, samples: Sequence[Sample], extensions: Sequence[str]) -> None:
    for sample in samples:
        for extension in extensions:
            if extension not in sample.members:
                sample_extensions = ", ".join(map(repr, sample.members))
                raise SourceError(
                    f"sample {sample.key.lstrip('/')!r} in {file.path} has no {extension!r}. "
                    f"It has {sample_extensions}. Pass members=[...] with extensions that all samples have."
                )


def _describe_member(file: ReadableFile, member: TarMember) -> str:
    return f"{member.name!r} in {file.path}"

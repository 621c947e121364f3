"""WebDataset archives: samples of a tar are found by an index made once, so any of them is as near as any other.

Images, `.npy` arrays and numbers in text are decoded here; anything else by a function of the user's.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from forebay.core.rows import Rows
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, ArraySpec, Tree, as_specs
from forebay.errors import SourceError, SpecError
from forebay.sources.files.columns import check_chosen, named
from forebay.sources.files.mapped import PathName
from forebay.sources.files.match_spec import fit_spec
from forebay.sources.formats.gzip_whole import AnyFile, open_any
from forebay.sources.formats.npy import HEAD_NBYTES, parse_header
from forebay.sources.formats.tar_index import Sample, TarMember, list_samples

__all__ = ["TarSource", "open_webdataset"]

Decode: TypeAlias = Mapping[str, Callable[[bytes], Any]]  # by a member's ending: its bytes to an array

_IMAGES = {"jpg", "jpeg", "png", "bmp", "gif", "tif", "tiff", "webp", "ppm", "pgm"}
_NUMBERS = {"cls", "cls2", "index", "inx", "id"}  # WebDataset's own names for a whole number in text


def open_webdataset(
    path: PathName,
    *,
    spec: Tree | None = None,
    members: Sequence[str] | None = None,
    decode: Decode | None = None,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    max_held_nbytes: int = 2**30,
) -> "TarSource":
    """Open one tar as a dict of what its samples are made of, by ending: `{"jpg": ..., "cls": ...}`.

    `members=["jpg", "cls"]` takes only those. Images become uint8 pixels, all of one size (`size` and `channels` as for
    image files), `cls` an int64, `npy` its array; `decode={"json": function}` makes an array of a member's bytes.
    An archive that was compressed as a whole is unpacked into memory, up to `max_held_nbytes`.
    """
    file = open_any(path, max_held_nbytes)
    samples = list_samples(file)
    if not samples:
        raise SourceError(f"{path} has no samples: a sample is made of members such as 0001.jpg and 0001.cls.")
    if members is None:
        members = list(samples[0].members) if spec is None else as_specs(spec)[1].paths
    decode = decode or {}
    check_chosen(file.path, "member", [*members, *decode], list(samples[0].members))
    _check_samples(file, samples, members)
    makers = [_maker(file, samples[0], part, decode.get(part), size=size, channels=channels) for part in members]
    return TarSource(file, samples, members, makers, spec, max_held_nbytes)


class TarSource(AbstractSource):
    """The samples of one archive, a row each."""

    immutable = True  # what lies in a file stays as it is

    def __init__(
        self,
        file: AnyFile,
        samples: Sequence[Sample],
        parts: Sequence[str],
        makers: Sequence["_Maker"],
        spec: Tree | None,
        max_held_nbytes: int,
    ) -> None:
        self.specs = tuple(maker.spec for maker in makers)
        self.structure = fit_spec(file.path, self.specs, named(parts), spec)
        self._file: AnyFile | None = file
        self._path = file.path
        self._members = [[sample.members[part] for part in parts] for sample in samples]
        self._makers = makers
        self._reopen = partial(_reopen, file.path, file.stamp, samples, parts, makers, spec, max_held_nbytes)

    def __len__(self) -> int:
        return len(self._members)

    @property
    def held_nbytes(self) -> int:
        """Memory that an unpacked archive takes."""
        return getattr(self._file, "held_nbytes", 0)

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        file = self._file
        if file is None:
            raise SourceError(f"{self._path} was closed: open it again to read from it.")
        numbers = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        for place, number in enumerate(numbers):
            for maker, member, leaf in zip(self._makers, self._members[number], out, strict=True):
                maker.make(_name(file, member), file.read(member.offset, member.nbytes), leaf[place : place + 1])

    def reopener(self) -> Callable[[], AbstractSource]:
        return self._reopen

    def close(self) -> None:
        self._file = None


def _reopen(
    path: Path,
    stamp: object,
    samples: Sequence[Sample],
    parts: Sequence[str],
    makers: Sequence["_Maker"],
    spec: Tree | None,
    max_held_nbytes: int,
) -> TarSource:
    """The same archive again, without looking for its samples a second time if it is unchanged."""
    file = open_any(path, max_held_nbytes)
    found = samples if file.stamp == stamp else list_samples(file)
    _check_samples(file, found, parts)
    return TarSource(file, found, parts, makers, spec, max_held_nbytes)


class _Maker(Protocol):
    """Makes one row of a leaf of a member's bytes."""

    @property
    def spec(self) -> ArraySpec: ...
    def make(self, name: str, data: bytes, row: Array) -> None: ...


def _maker(
    file: AnyFile,
    first: Sample,
    part: str,
    decode: Callable[[bytes], Any] | None,
    *,
    size: tuple[int, int] | None,
    channels: int | None,
) -> _Maker:
    member = first.members[part]
    name, data, ending = _name(file, member), file.read(member.offset, member.nbytes), part.rpartition(".")[2]
    if decode is not None:
        return _MadeBy(lambda _, data: decode(data), name, data)
    if ending in _IMAGES:
        return _MadeOfImage(name, data, size=size, channels=channels)
    if ending == "npy":
        return _MadeBy(_load_npy, name, data)
    if ending in _NUMBERS:
        return _MadeBy(_parse_number, name, data)
    raise SourceError(
        f"{name} is no image, array or number: choose others with members=[...], or say how to make an array of its "
        f"bytes with decode={{{part!r}: function}}."
    )


class _MadeBy:
    """By a function of the name, for errors, and the bytes."""

    def __init__(self, function: Callable[[str, bytes], Any], first_name: str, first: bytes) -> None:
        self._function, self._first_name = function, first_name
        made = np.asarray(function(first_name, first))
        self.spec = ArraySpec(made.shape, made.dtype)
        self.spec.check(first_name)

    def make(self, name: str, data: bytes, row: Array) -> None:
        made = np.asarray(self._function(name, data))
        if (made.shape, made.dtype) != (self.spec.shape, self.spec.dtype):
            got = ArraySpec(made.shape, made.dtype)
            raise SpecError(f"{name} becomes {got}, but {self._first_name} becomes {self.spec}: rows must be alike.")
        row[0] = made


class _MadeOfImage:
    """By Pillow."""

    def __init__(self, name: str, data: bytes, *, size: tuple[int, int] | None, channels: int | None) -> None:
        # Only archives with images in them need Pillow.
        from forebay.sources.formats.image_decode import ImageDecoder

        self._decoder = ImageDecoder(name, io.BytesIO(data), size=size, channels=channels)
        self.spec = self._decoder.spec

    def make(self, name: str, data: bytes, row: Array) -> None:
        self._decoder.decode(name, io.BytesIO(data), row[0])


def _load_npy(name: str, data: bytes) -> Array:
    header = parse_header(data[:HEAD_NBYTES], name)
    try:
        array: Array = np.ndarray(header.shape, header.dtype, data, header.nbytes, order=header.order)
    except TypeError as error:
        raise SourceError(f"{name} is cut short: {error}.") from error
    return array.astype(header.dtype.newbyteorder("="), copy=False)


def _parse_number(name: str, data: bytes) -> Any:
    try:
        return np.int64(int(data))
    except (ValueError, OverflowError) as error:
        raise SourceError(f"{name} is no whole number but {data[:40]!r}: say what it is with decode=.") from error


def _check_samples(file: AnyFile, samples: Sequence[Sample], parts: Sequence[str]) -> None:
    for sample in samples:
        for part in parts:
            if part not in sample.members:
                has = ", ".join(map(repr, sample.members))
                raise SourceError(
                    f"sample {sample.key.lstrip('/')!r} in {file.path} has no {part!r}: it has {has}. Choose what all "
                    "samples have with members=[...]."
                )


def _name(file: AnyFile, member: TarMember) -> str:
    return f"{member.name!r} in {file.path}"

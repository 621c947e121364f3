"""TFRecord files: an index of records is made once from their lengths, so any record is as near as any other.

Every length and every record carries a checksum, and every one of them is checked: lengths as the index is made,
records as they are read. `tf.train.Example` messages become leaves without TensorFlow; other messages are left to a
function of the user's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import google_crc32c
import numpy as np

from forebay.core.rows import Rows
from forebay.core.source import AbstractSource, MemoryRegion
from forebay.core.spec import Array, Tree
from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile, PathName
from forebay.sources.files.match_spec import fit_spec
from forebay.sources.formats.gzip_whole import AnyFile, open_any
from forebay.sources.formats.tfrecord_rows import ExampleReader, FunctionReader, RecordReader

__all__ = ["RecordSource", "open_tfrecord"]

Decode: TypeAlias = Callable[[bytes], Any] | Mapping[str, Callable[[bytes], Any]]

_HEAD_NBYTES = 12  # a length of 8, and its checksum
_FOOT_NBYTES = 4


def open_tfrecord(
    path: PathName,
    *,
    spec: Tree | None = None,
    members: Sequence[str] | None = None,
    decode: Decode | None = None,
    max_held_nbytes: int = 2**30,
) -> "RecordSource":
    """Open one TFRecord file of Examples as a dict of their features.

    Numbers become float32 and int64 leaves, all rows as long as the first. Bytes are an array as it lies in memory
    where `spec={"image": ArraySpec((28, 28), "uint8")}` says so, or what `decode={"image": function}` makes of them.
    `members=["x", "y"]` takes only those features. `decode=function` makes a row, a tree of arrays, of each record
    whatever it holds. A file that was compressed as a whole is unpacked into memory, up to `max_held_nbytes`.
    """
    file = _open(path, max_held_nbytes)
    spans = scan_records(file)
    if len(spans) == 0:
        raise SourceError(f"{path} has no records, so nothing tells what a row is: leave it out.")
    (first,) = read_records(file, np.arange(1), spans[:1])
    reader: RecordReader
    if callable(decode):
        reader = FunctionReader(file.path, decode, first)
    else:
        reader = ExampleReader(file.path, first, members=members, spec=spec, decode=decode or {})
    return RecordSource(file, spans, reader, spec, max_held_nbytes)


def _open(path: PathName, max_held_nbytes: int) -> AnyFile:
    """A first length can begin as gzip does, but hardly with the right checksum."""
    file = MappedFile(path)
    head = file.read(0, _HEAD_NBYTES)
    plain = len(head) == _HEAD_NBYTES and masked_crc(head[:8]) == int.from_bytes(head[8:], "little")
    return file if plain else open_any(path, max_held_nbytes)


class RecordSource(AbstractSource):
    """The records of one file, a row each."""

    immutable = True  # what lies in a file stays as it is

    def __init__(
        self, file: AnyFile, spans: Array, reader: RecordReader, spec: Tree | None, max_held_nbytes: int
    ) -> None:
        self.specs = tuple(reader.specs)
        self.structure = fit_spec(file.path, self.specs, reader.structure, spec)
        self._file: AnyFile | None = file
        self._path, self._stamp = file.path, file.stamp
        self._spans, self._reader, self._spec = spans, reader, spec
        self._max_held_nbytes = max_held_nbytes

    def __len__(self) -> int:
        return len(self._spans)

    @property
    def held_nbytes(self) -> int:
        """Memory that an unpacked file takes."""
        return getattr(self._file, "held_nbytes", 0)

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        file = self._file
        if file is None:
            raise SourceError(f"{self._path} was closed: open it again to read from it.")
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        self._reader.read(numbers, read_records(file, numbers, self._spans[numbers]), out)

    def memory(self) -> list[MemoryRegion]:
        """Nothing: the rows lie in no memory until they are taken apart."""
        return []

    def close(self) -> None:
        self._file = None

    def reopener(self) -> Callable[[], AbstractSource]:
        return self._reopen

    def _reopen(self) -> "RecordSource":
        """The same file again, without looking for its records a second time if it is unchanged."""
        file = _open(self._path, self._max_held_nbytes)
        spans = self._spans if file.stamp == self._stamp else scan_records(file)
        return RecordSource(file, spans, self._reader, self._spec, self._max_held_nbytes)


def scan_records(file: AnyFile) -> Array:
    """Where the data of each record begins and ends."""
    memory, place = file.view(), 0
    heads: list[bytes] = []
    spans: list[tuple[int, int]] = []
    while place + _HEAD_NBYTES <= file.nbytes:
        heads.append(memory[place : place + _HEAD_NBYTES])
        start = place + _HEAD_NBYTES
        stop = start + int.from_bytes(heads[-1][:8], "little")
        spans.append((start, stop))
        place = stop + _FOOT_NBYTES
    _check_lengths(file, heads)
    if place != file.nbytes:
        raise _damaged(file, f"it is cut short in record {len(spans) - (place > file.nbytes)}")
    return np.asarray(spans, np.int64).reshape(-1, 2)


def _check_lengths(file: AnyFile, heads: Sequence[bytes]) -> None:
    crcs = np.frombuffer(b"".join([head[8:] for head in heads]), "<u4")
    wrong = np.flatnonzero(_masked(google_crc32c.value(head[:8]) for head in heads) != crcs)
    if wrong.size:
        raise _damaged(file, f"the length of record {wrong[0]} is wrong") if wrong[0] else _not_records(file)


def read_records(file: AnyFile, numbers: Array, spans: Array) -> list[bytes]:
    """The data of records, checked."""
    memory, ends = file.view(), spans.tolist()
    records = [memory[start:stop] for start, stop in ends]
    feet = b"".join([memory[stop : stop + _FOOT_NBYTES] for _, stop in ends])
    wrong = np.flatnonzero(_masked(map(google_crc32c.value, records)) != np.frombuffer(feet, "<u4"))
    if wrong.size:
        raise _damaged(file, f"the checksum of record {numbers[wrong[0]]} is wrong")
    return records


def masked_crc(data: bytes) -> int:
    """CRC-32C as TensorFlow writes it."""
    return int(_masked([google_crc32c.value(data)])[0])


def _masked(crcs: Iterable[int]) -> Array:
    """Checksums turned by 15 bits, plus a number: a checksum over checksums would say little otherwise."""
    plain = np.fromiter(crcs, np.uint32)
    return (plain >> 15 | plain << 17) + np.uint32(0xA282EAD8)


def _damaged(file: AnyFile, why: str) -> SourceError:
    return SourceError(f"{file.path} is damaged: {why}. Write or download it again.")


def _not_records(file: AnyFile) -> SourceError:
    return SourceError(f"{file.path} is no TFRecord file: the checksum of its first length is wrong.")

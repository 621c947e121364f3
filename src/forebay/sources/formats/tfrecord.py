"""TFRecord files as a source: one record is one row.

Opening builds an index of the records, so rows can be read in any order. Forebay verifies the checksums of all lengths
when it builds the index, and the checksum of a record when it reads the record. It parses `tf.train.Example` messages
without TensorFlow. For other messages, the user passes a function.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import google_crc32c
import numpy as np

from forebay.core.progress_line import ProgressLine
from forebay.core.rows import Rows, row_array
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, Tree
from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile, PathName, closed_error
from forebay.sources.files.match_spec import match_spec
from forebay.sources.formats.gzip_file import ReadableFile, open_maybe_gzip
from forebay.sources.formats.tfrecord_rows import ExampleReader, FunctionReader, RecordReader

__all__ = ["RecordSource", "open_records", "open_tfrecord", "read_records", "scan_records"]

# A function from a record to a row, or a function from bytes to an array for each feature name.
RecordDecoders: TypeAlias = Callable[[bytes], Any] | Mapping[str, Callable[[bytes], Any]]

_HEAD_NBYTES = 12  # bytes before the data: 8 of length and 4 of its checksum
_FOOT_NBYTES = 4  # bytes after the data: its checksum
_VERIFIED_RECORDS = 2**16  # lengths that are verified together; this bounds the memory for copies of record heads


def open_tfrecord(
    path: PathName,
    *,
    spec: Tree | None = None,
    members: Sequence[str] | None = None,
    decode: RecordDecoders | None = None,
    max_held_nbytes: int = 2**30,
) -> "RecordSource":
    """Open one TFRecord file of Examples. A row is a dict of features.

    Numbers become float32 and int64 leaves. Each feature must have as many numbers in every row as in the first row.
    Bytes become the array that `spec={"image": ArraySpec((28, 28), "uint8")}` describes, or the result of
    `decode={"image": function}`. `members=["x", "y"]` selects features. `decode=function` converts any record to a row,
    a tree of arrays. Forebay decompresses a gzip file into memory, up to `max_held_nbytes`.
    """
    file = open_records(path, max_held_nbytes)
    spans = scan_records(file)
    if len(spans) == 0:
        raise SourceError(f"{path} has no records, so its rows have no spec. Remove it from the list of files.")
    (first,) = read_records(file, np.arange(1), spans[:1])
    reader: RecordReader
    if callable(decode):
        reader = FunctionReader(file.path, decode, first)
    else:
        reader = ExampleReader(file.path, first, members=members, spec=spec, decode=decode or {})
    return RecordSource(file, spans, reader, spec, max_held_nbytes)


def open_records(path: PathName, max_held_nbytes: int) -> ReadableFile:
    """Map a TFRecord file, or decompress it if it is a gzip file.

    The length of the first record may begin with the magic bytes of gzip. So this function first tests the checksum of
    the length.
    """
    file = MappedFile(path)
    head = file.read(0, _HEAD_NBYTES)
    is_record = len(head) == _HEAD_NBYTES and masked_crc(head[:8]) == int.from_bytes(head[8:], "little")
    return file if is_record else open_maybe_gzip(path, max_held_nbytes)


class RecordSource(AbstractSource):
    """A source whose rows are the records of one file."""

    immutable = True

    def __init__(
        self, file: ReadableFile, spans: Array, reader: RecordReader, spec: Tree | None, max_held_nbytes: int
    ) -> None:
        self.specs = tuple(reader.specs)
        self.structure = match_spec(file.path, self.specs, reader.structure, spec)
        self._file: ReadableFile | None = file
        self._path, self._stamp = file.path, file.stamp
        self._spans, self._reader, self._spec = spans, reader, spec
        self._max_held_nbytes = max_held_nbytes

    def __len__(self) -> int:
        return len(self._spans)

    @property
    def held_nbytes(self) -> int:
        return 0 if self._file is None else self._file.held_nbytes

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        file = self._file
        if file is None:
            raise closed_error(self._path)
        numbers = row_array(rows)
        self._reader.read(numbers, read_records(file, numbers, self._spans[numbers]), out)

    def close(self) -> None:
        self._file = None

    def reopener(self) -> Callable[[], AbstractSource]:
        """Return a function that reopens the file.

        The function reuses the index, or builds a new one if the file has changed.
        """
        return self._reopen

    def _reopen(self) -> "RecordSource":
        file = open_records(self._path, self._max_held_nbytes)
        spans = self._spans if file.stamp == self._stamp else scan_records(file)
        return RecordSource(file, spans, self._reader, self._spec, self._max_held_nbytes)


def scan_records(file: ReadableFile) -> Array:
    """Return an array with start and stop (exclusive) of the data of each record."""
    with ProgressLine(f"indexing {file.path}", file.nbytes) as progress:
        return _scan_records(file, progress)


def _scan_records(file: ReadableFile, progress: ProgressLine) -> Array:
    memory, position, verified = file.view(), 0, 0
    heads: list[bytes] = []  # of the records whose lengths are not verified yet
    spans = array("q")
    while position + _HEAD_NBYTES <= file.nbytes:
        if len(heads) == _VERIFIED_RECORDS:
            _validate_lengths(file, verified, heads)
            verified, heads = verified + len(heads), []
            progress.done = position
        heads.append(memory[position : position + _HEAD_NBYTES])
        start = position + _HEAD_NBYTES
        stop = start + int.from_bytes(heads[-1][:8], "little")
        position = stop + _FOOT_NBYTES
        if position <= file.nbytes:
            spans.extend((start, stop))
    _validate_lengths(file, verified, heads)
    if position != file.nbytes:
        raise _damage_error(file, f"it is truncated in record {len(spans) // 2}")
    return np.array(spans, np.int64).reshape(-1, 2)


def _validate_lengths(file: ReadableFile, first: int, heads: Sequence[bytes]) -> None:
    """Raise SourceError if the checksum of a length in `heads` is wrong.

    `heads` are those of consecutive records, and `first` is the number of the first of these records.
    """
    stored_crcs = np.frombuffer(b"".join([head[8:] for head in heads]), "<u4")
    wrong_records = first + np.flatnonzero(_mask(google_crc32c.value(head[:8]) for head in heads) != stored_crcs)
    if wrong_records.size and wrong_records[0]:
        raise _damage_error(file, f"the length of record {wrong_records[0]} is wrong")
    if wrong_records.size:
        raise SourceError(
            f"{file.path} is not a TFRecord file: the checksum of its first length is wrong. Check its format."
        )


def read_records(file: ReadableFile, numbers: Array, spans: Array) -> list[bytes]:
    """Return the data of the records with these numbers, after verifying their checksums."""
    memory, bounds = file.view(), spans.tolist()
    records = [memory[start:stop] for start, stop in bounds]
    stored_crcs = np.frombuffer(b"".join([memory[stop : stop + _FOOT_NBYTES] for _, stop in bounds]), "<u4")
    wrong_records = np.flatnonzero(_mask(map(google_crc32c.value, records)) != stored_crcs)
    if wrong_records.size:
        raise _damage_error(file, f"the checksum of record {numbers[wrong_records[0]]} is wrong")
    return records


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C in the masked form that TensorFlow writes."""
    return int(_mask([google_crc32c.value(data)])[0])


def _mask(crcs: Iterable[int]) -> Array:
    """Rotate checksums by 15 bits and add a constant, as the TFRecord format defines.

    The mask protects against data that contains its own checksums, for which a plain CRC is weak.
    """
    values = np.fromiter(crcs, np.uint32)
    return (values >> 15 | values << 17) + np.uint32(0xA282EAD8)


def _damage_error(file: ReadableFile, reason: str) -> SourceError:
    return SourceError(f"{file.path} is damaged: {reason}. Write or download it again.")

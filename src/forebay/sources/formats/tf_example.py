"""`tf.train.Example` messages, taken apart without TensorFlow: which features a record has and where their values lie.

The message is small enough to be read by hand: an Example holds Features, a map from names to one list each of
bytes, floats or whole numbers. Any other field is passed over, as protocol buffers ask for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from forebay.core.spec import Array

__all__ = ["Feature", "Kind", "parse_example", "read_varints"]

Kind: TypeAlias = Literal["bytes", "float", "int64"]
Span: TypeAlias = tuple[int, int]

_KINDS: dict[int, Kind] = {1: "bytes", 2: "float", 3: "int64"}
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Feature:
    """One list of values: the pieces of the record they lie in. Bytes have a piece a value; numbers mostly have one."""

    kind: Kind
    pieces: list[Span]

    def numbers(self, record: bytes) -> Array:
        """The values of a list of numbers."""
        data = b"".join([record[start:stop] for start, stop in self.pieces])
        return np.frombuffer(data, "<f4") if self.kind == "float" else read_varints(np.frombuffer(data, np.uint8))


def parse_example(record: bytes) -> dict[str, Feature]:
    """The features of a record by name; `ValueError` where it is no Example."""
    found: dict[str, Feature] = {}
    for features in _inside(record, (0, len(record)), 1):
        for entry in _inside(record, features, 1):
            names, values = list(_inside(record, entry, 1)), list(_inside(record, entry, 2))
            name = record[slice(*names[-1])].decode() if names else ""
            found[name] = _parse_feature(record, values[-1] if values else (0, 0))
    return found


def read_varints(data: Array) -> Array:
    """Whole numbers of seven bits a byte, the lowest first; the last byte of each is the one below 128."""
    if len(data) == 0:
        return np.empty(0, np.int64)
    last = np.flatnonzero(data < 128)
    if len(last) == 0 or last[-1] != len(data) - 1:
        raise ValueError("a number in it has no end")
    firsts = np.concatenate([[0], last[:-1] + 1])
    shifts = 7 * (np.arange(len(data)) - np.repeat(firsts, np.diff([*firsts, len(data)])))
    if shifts.max() > 63:
        raise ValueError("a number in it is longer than 64 bits")
    parts = (data & 127).astype(np.uint64) << shifts.astype(np.uint64)
    return np.add.reduceat(parts, firsts).view(np.int64)


def _parse_feature(record: bytes, span: Span) -> Feature:
    feature = Feature("bytes", [])
    for number, wire, part in _fields(record, span):
        if number in _KINDS and wire == _DELIMITED:
            values = [value for inner, _, value in _fields(record, part) if inner == 1]
            feature = Feature(_KINDS[number], values)
    return feature


def _inside(record: bytes, span: Span, wanted: int) -> Iterator[Span]:
    """The messages and strings of one field."""
    return (part for number, wire, part in _fields(record, span) if number == wanted and wire == _DELIMITED)


def _fields(record: bytes, span: Span) -> Iterator[tuple[int, int, Span]]:
    """Every field of a message: its number, how it is written, and where its value lies."""
    place, stop = span
    while place < stop:
        tag, place = _varint(record, place, stop)
        wire, start = tag & 7, place
        if wire == _DELIMITED:
            nbytes, start = _varint(record, place, stop)
            place = start + nbytes
        elif wire == _VARINT:
            place = _varint(record, place, stop)[1]
        elif wire in (_FIXED32, _FIXED64):
            place += 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"a field in it is written in a way ({wire}) that there is not")
        if place > stop:
            raise ValueError("a field in it ends past its end")
        yield tag >> 3, wire, (start, place)


def _varint(record: bytes, place: int, stop: int) -> tuple[int, int]:
    value, shift = 0, 0
    while place < stop and shift < 64:
        byte = record[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
    raise ValueError("a number in it has no end")

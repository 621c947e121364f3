"""A parser of `tf.train.Example` messages that needs no TensorFlow.

An Example is a protocol buffer: a map from feature names to lists. A list contains bytes values, floats or integers.
The parser skips unknown fields, as protocol buffers require.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from forebay.core.spec import Array

__all__ = ["Bytes", "Feature", "Kind", "parse_example", "read_varints"]

Kind: TypeAlias = Literal["bytes", "float", "int64"]
Bytes: TypeAlias = bytes | memoryview
Span: TypeAlias = tuple[int, int]  # start and stop (exclusive) of bytes in the record

_KINDS: dict[int, Kind] = {1: "bytes", 2: "float", 3: "int64"}  # field number of the message Feature -> kind of values
_MAX_VARINT_NBYTES = 10  # bytes of a 64-bit number, with 7 bits in each byte
_PART_NBYTES = 2**20  # bytes of varints that are decoded at a time, because decoding needs 40 times their memory
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers


@dataclass(frozen=True, slots=True)
class Feature:
    """The values of one feature, as spans of the record.

    A list of bytes values has one span per value. A list of numbers usually has one span for all numbers, but may have
    several.
    """

    kind: Kind
    spans: list[Span]

    def numbers(self, record: Bytes) -> Array:
        """Return the numbers of a float or int64 feature."""
        data = b"".join([record[start:stop] for start, stop in self.spans])
        return np.frombuffer(data, "<f4") if self.kind == "float" else read_varints(np.frombuffer(data, np.uint8))


def parse_example(record: Bytes) -> dict[str, Feature]:
    """Return the features of a record by name.

    Raise `ValueError` if the record is not an Example.
    """
    features: dict[str, Feature] = {}
    for features_span in _submessages(record, (0, len(record)), 1):
        for entry in _submessages(record, features_span, 1):
            names, values = list(_submessages(record, entry, 1)), list(_submessages(record, entry, 2))
            name = bytes(record[slice(*names[-1])]).decode() if names else ""
            features[name] = _parse_feature(record, values[-1] if values else (0, 0))
    return features


def read_varints(data: Array) -> Array:
    """Decode varints to int64.

    A varint has seven bits in each byte, the lowest bits first. Its last byte is below 128.
    """
    if len(data) > _PART_NBYTES:
        return np.concatenate([_decode_varints(part) for part in _split_varints(data)])
    return _decode_varints(data)


def _split_varints(data: Array) -> Iterator[Array]:
    """Yield parts of about `_PART_NBYTES`. Each part ends with the last byte of a varint."""
    start = 0
    while start < len(data):
        candidates = data[start + _PART_NBYTES - 1 : start + _PART_NBYTES - 1 + _MAX_VARINT_NBYTES]
        lasts = np.flatnonzero(candidates < 128)
        stop = start + _PART_NBYTES + int(lasts[0]) if len(lasts) else len(data)
        if stop - start > _PART_NBYTES + _MAX_VARINT_NBYTES:
            raise ValueError("a number in it is longer than 64 bits")
        yield data[start:stop]
        start = stop


def _decode_varints(data: Array) -> Array:
    if len(data) == 0:
        return np.empty(0, np.int64)
    lasts = np.flatnonzero(data < 128)
    if len(lasts) == 0 or lasts[-1] != len(data) - 1:
        raise ValueError("a number in it has no end")
    firsts = np.concatenate([[0], lasts[:-1] + 1])
    shifts = 7 * (np.arange(len(data)) - np.repeat(firsts, np.diff([*firsts, len(data)])))
    if shifts.max() > 63:
        raise ValueError("a number in it is longer than 64 bits")
    parts = (data & 127).astype(np.uint64) << shifts.astype(np.uint64)
    return np.add.reduceat(parts, firsts).view(np.int64)


def _parse_feature(record: Bytes, span: Span) -> Feature:
    feature = Feature("bytes", [])
    for number, wire_type, list_span in _parse_fields(record, span):
        if number in _KINDS and wire_type == _DELIMITED:
            value_spans = [value_span for inner, _, value_span in _parse_fields(record, list_span) if inner == 1]
            feature = Feature(_KINDS[number], value_spans)
    return feature


def _submessages(record: Bytes, span: Span, field_number: int) -> Iterator[Span]:
    """Yield the spans of the messages or strings in one field."""
    return (
        field_span
        for number, wire_type, field_span in _parse_fields(record, span)
        if number == field_number and wire_type == _DELIMITED
    )


def _parse_fields(record: Bytes, span: Span) -> Iterator[tuple[int, int, Span]]:
    """Yield (number, wire type, span) of each field of the message at `span`."""
    position, stop = span
    while position < stop:
        tag, position = _read_varint(record, position, stop)
        wire_type, start = tag & 7, position
        if wire_type == _DELIMITED:
            nbytes, start = _read_varint(record, position, stop)
            position = start + nbytes
        elif wire_type == _VARINT:
            position = _read_varint(record, position, stop)[1]
        elif wire_type in (_FIXED32, _FIXED64):
            position += 4 if wire_type == _FIXED32 else 8
        else:
            raise ValueError(f"a field in it has the unknown wire type {wire_type}")
        if position > stop:
            raise ValueError("a field in it ends after the end of its message")
        yield tag >> 3, wire_type, (start, position)


def _read_varint(record: Bytes, position: int, stop: int) -> tuple[int, int]:
    """Return the varint at a position, and the position after the varint."""
    value, shift = 0, 0
    while position < stop and shift < 64:
        byte = record[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
    raise ValueError("a number in it has no end")

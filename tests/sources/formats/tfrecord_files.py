"""TFRecord files of Examples, written without TensorFlow."""

import struct

from forebay.sources.formats.tfrecord import masked_crc


def varint(number):
    number &= 2**64 - 1
    parts = [number >> shift & 127 for shift in range(0, 70, 7) if shift == 0 or number >> shift]
    return bytes([part | 128 for part in parts[:-1]] + parts[-1:])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(**features):
    return field(1, b"".join(field(1, field(1, name.encode()) + field(2, value)) for name, value in features.items()))


def floats(*values):
    return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))


def ints(*values):
    return field(3, field(1, b"".join(map(varint, values))))


def raw(*values):
    return field(1, b"".join(field(1, value) for value in values))


def write(path, *records):
    path.write_bytes(b"".join(with_crc(struct.pack("<Q", len(record))) + with_crc(record) for record in records))
    return path


def with_crc(data):
    """Return the data and the checksum that follows them in a file."""
    return data + struct.pack("<L", masked_crc(data))

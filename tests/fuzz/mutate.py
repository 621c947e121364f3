"""Random damage of bytes, as a pure function of a random number generator.

The mutator uses only the standard library, so it runs on every architecture. The same generator state gives the same
result. `structures.py` damages files that it can parse.
"""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

__all__ = ["INTERESTING_NUMBERS", "Damage", "choose_number", "damage_bytes"]

Damage: TypeAlias = Callable[[Random, bytes], bytes]

MAX_DAMAGES = 4  # changes of one file; with more changes, readers would refuse nearly every file at its first bytes
EDGE_NBYTES = 64  # headers are at the beginning, directories and footers at the end
INTERESTING_NUMBERS = (
    *(0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 100, 127, 128, 255, 256, 511, 512, 1000, 4095, 4096, 32767, 32768),
    *(65535, 65536, 2**24, 2**28, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1),
)
_INTERESTING_BYTES = (0x00, 0x01, 0x20, 0x30, 0x39, 0x7F, 0x80, 0xFE, 0xFF)


def damage_bytes(rng: Random, data: bytes) -> bytes:
    """Return the data after one to four random changes. Half of the calls make one change."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, MAX_DAMAGES))):
        data = rng.choice(_DAMAGES)(rng, data)
    return data


def choose_number(rng: Random) -> int:
    """Return a number that often breaks readers, possibly negative or off by one."""
    number = rng.choice(INTERESTING_NUMBERS) + rng.choice((0, 0, 0, -1, 1))
    return -number if rng.random() < 0.15 else number


def _choose_offset(rng: Random, nbytes: int) -> int:
    """Choose an offset: half of the time near an edge of the file."""
    edge = min(nbytes, EDGE_NBYTES)
    offset = rng.randrange(max(1, nbytes))
    near_start, near_end = rng.randrange(max(1, edge)), nbytes - 1 - rng.randrange(max(1, edge))
    return max(0, rng.choice((offset, offset, near_start, near_end)))


def _choose_range(rng: Random, nbytes: int) -> tuple[int, int]:
    start = _choose_offset(rng, nbytes)
    length = rng.choice((1, 2, 4, 8, rng.randint(1, 64), rng.randint(1, 512), rng.randint(1, max(1, nbytes))))
    return start, min(nbytes, start + length)


def _flip_bit(rng: Random, data: bytes) -> bytes:
    if not data:
        return data
    offset = _choose_offset(rng, len(data))
    return data[:offset] + bytes([data[offset] ^ 1 << rng.randrange(8)]) + data[offset + 1 :]


def _set_byte(rng: Random, data: bytes) -> bytes:
    offset = _choose_offset(rng, len(data))
    value = rng.choice(_INTERESTING_BYTES) if rng.random() < 0.5 else rng.randrange(256)
    return data[:offset] + bytes([value]) + data[offset + 1 :]


def _set_number(rng: Random, data: bytes) -> bytes:
    """Overwrite 2, 4 or 8 bytes with a number, often at an aligned offset."""
    width = rng.choice((2, 4, 8))
    offset = _choose_offset(rng, len(data))
    if rng.random() < 0.7:
        offset -= offset % width
    number = (choose_number(rng) % (1 << 8 * width)).to_bytes(width, rng.choice(("little", "big")))
    return data[:offset] + number[: max(1, len(data) - offset)] + data[offset + width :]


def _truncate(rng: Random, data: bytes) -> bytes:
    return data[: _choose_offset(rng, len(data))]


def _delete_range(rng: Random, data: bytes) -> bytes:
    start, stop = _choose_range(rng, len(data))
    return data[:start] + data[stop:]


def _zero_range(rng: Random, data: bytes) -> bytes:
    start, stop = _choose_range(rng, len(data))
    return data[:start] + bytes(stop - start) + data[stop:]


def _insert_bytes(rng: Random, data: bytes) -> bytes:
    offset = _choose_offset(rng, len(data))
    return data[:offset] + rng.randbytes(rng.choice((1, 2, 4, 8, 64))) + data[offset:]


def _duplicate_range(rng: Random, data: bytes) -> bytes:
    start, stop = _choose_range(rng, len(data))
    offset = rng.choice((stop, _choose_offset(rng, len(data))))
    return data[:offset] + data[start:stop] + data[offset:]


def _copy_range_over(rng: Random, data: bytes) -> bytes:
    """Overwrite one place with bytes of another place. The length stays the same."""
    start, stop = _choose_range(rng, len(data))
    target = _choose_offset(rng, len(data))
    return (data[:target] + data[start:stop] + data[target + stop - start :])[: len(data)]


_DAMAGES: tuple[Damage, ...] = (
    _flip_bit,
    _flip_bit,
    _set_byte,
    _set_byte,
    _set_number,
    _set_number,
    _truncate,
    _delete_range,
    _zero_range,
    _insert_bytes,
    _duplicate_range,
    _copy_range_over,
)

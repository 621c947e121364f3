"""The headers of a plain tar archive, read some twenty times as fast as `tarfile` does.

Archives of samples have millions of members, nearly all of them plain files with short names. Whatever else turns up
(long names, links, holes, sizes past 8 GiB) is left to `tarfile`: then all of the archive is.
"""

import mmap
from collections.abc import Sequence

import numpy as np

__all__ = ["scan_plain"]

_BLOCK = 512
_PLAIN, _FOLDER, _EXTENDED = b"0\0", b"5", b"x"
_CHANGES = (b" path=", b" size=", b" GNU.")  # what an extended header may say that matters here
_POSIX = b"ustar\0"


def scan_plain(memory: mmap.mmap | bytes, nbytes: int) -> list[tuple[str, int, int]] | None:
    """Name, offset and size of each file; None where the archive is not plain, or is damaged."""
    found: list[tuple[str, int, int]] = []
    heads: list[bytes] = []
    place = 0
    while place + _BLOCK <= nbytes:
        head = memory[place : place + _BLOCK]
        if head[0] == 0:  # the end is marked by empty blocks
            break
        size, kind, start = _octal(head[124:136]), head[156], place + _BLOCK
        if size is None or start + size > nbytes:
            return None
        if kind in _PLAIN:
            found.append((_name(head), start, size))
        elif not (kind in _FOLDER or (kind in _EXTENDED and _changes_nothing(memory[start : start + size]))):
            return None
        heads.append(head)
        place = start + -(-size // _BLOCK) * _BLOCK
    return found if _are_whole(heads) and place + _BLOCK <= nbytes else None


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    return int(digits, 8) if digits.isdigit() and not digits.strip(b"01234567") else None


def _name(head: bytes) -> str:
    name = head[:100].partition(b"\0")[0]
    prefix = head[345:500].partition(b"\0")[0] if head[257:263] == _POSIX else b""
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "surrogateescape")


def _changes_nothing(extended: bytes) -> bool:
    return not any(change in extended for change in _CHANGES)


def _are_whole(heads: Sequence[bytes]) -> bool:
    """Whether every header has the sum of bytes that it claims, its own field counted as spaces."""
    if not heads:
        return False
    table = np.frombuffer(b"".join(heads), np.uint8).reshape(-1, _BLOCK)
    sums = table.sum(axis=1, dtype=np.int64) - table[:, 148:156].sum(axis=1, dtype=np.int64) + 8 * ord(" ")
    claimed = [_octal(head[148:156]) for head in heads]
    return bool(claimed == sums.tolist())

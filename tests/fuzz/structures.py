"""Damage to the structure of a format, which reaches code behind checksums and length fields.

A function returns None if it cannot parse the data. `forges` says whether the function computes checksums again, so
that the reader cannot notice the damage.
"""

import gzip
import io
import json
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.fuzz.frames import join_records, split_records
from tests.fuzz.mutate import choose_number, damage_bytes

__all__ = ["StructureDamage", "damages_for"]

_DTYPES = ("<f4", ">i8", "|b1", "|O", "|V0", "|S0", "<U1", "<U536870911", "<M8[s]", "<c16", "x", "", [["a", "<f4"]])
_CODECS = ("pickle", "json2", "msgpack2", "vlen-utf8", "zlib", "gzip", "bz2", "lzma", "zstd", "blosc", "lz4", "delta")
_CODECS_V3 = ("bytes", "transpose", "crc32c", "sharding_indexed", "numcodecs.pickle", "numcodecs.zlib", "packbits")
_TEXTS = (
    "",
    "x",
    "..",
    "../canary",
    "/",
    "\0",
    "nan",
    "é" * 9,
    "9" * 5000,
    "<script>alert(1)</script>\x1b]0;title\x07",
    *_CODECS,
    *_CODECS_V3,
)
_CSV_TOKENS = (b"", b"nan", b"inf", b"1e999", b"-", b"0x1f", b'"', b'""', b"\0", b"1" * 400, b"1,2", b"\xff", b" ")
_ZIP_SIGNATURES = {b"PK\x01\x02": 46, b"PK\x03\x04": 30, b"PK\x05\x06": 22, b"PK\x06\x06": 56}  # -> header bytes
_TAR_FIELDS = {"name": (0, 100), "size": (124, 12), "type": (156, 1), "link": (157, 100), "magic": (257, 8)}
_TAR_VALUES = (b"", b"0", b"7" * 11, b"\x80" + b"\xff" * 11, b"\x80" + bytes(7) + b"\x01" + bytes(3), b"-1", b"xyz")
_TAR_TYPES = b"0\x001234567xgLKSVM"


@dataclass(frozen=True, slots=True)
class StructureDamage:
    """One way to damage a parsed file."""

    apply: Callable[[Random, bytes], bytes | None]
    forges: bool = False


def damages_for(name: str, data: bytes) -> tuple[StructureDamage, ...]:
    """Return the functions that fit a file, by its name and its first bytes."""
    if data[:2] == b"\x1f\x8b":
        inner = tuple(StructureDamage(_inside_gzip(each.apply), forges=True) for each in _for_plain(name))
        return (*inner, StructureDamage(_inside_gzip(damage_bytes), forges=True))
    return _for_plain(name)


def _for_plain(name: str) -> tuple[StructureDamage, ...]:
    """Return the functions for a plain file, or for the content of a gzip file."""
    for pattern, damages in _BY_NAME.items():
        if re.search(pattern, name):
            return damages
    return ()


def _inside_gzip(apply: Callable[[Random, bytes], bytes | None]) -> Callable[[Random, bytes], bytes | None]:
    def damage(rng: Random, data: bytes) -> bytes | None:
        changed = apply(rng, gzip.decompress(data))
        return None if changed is None else gzip.compress(changed, mtime=0)

    return damage


def change_json(rng: Random, data: bytes) -> bytes | None:
    """Replace, delete or copy one value of a JSON document."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):  # RecursionError: an attack with deep lists
        return None
    places = list(_json_places(document))
    if not places:
        return json.dumps(_choose_json(rng)).encode()
    container, key = rng.choice(places)
    other, other_key = rng.choice(places)
    action = rng.choice(("replace", "replace", "replace", "delete", "copy", "extend"))
    if action == "replace":
        container[key] = _choose_json(rng)
    elif action == "delete":
        del container[key]
    elif action == "copy":
        container[key] = json.loads(json.dumps(other[other_key]))
    elif isinstance(container, dict):
        container[rng.choice(_TEXTS)] = _choose_json(rng)
    else:
        container.insert(key, _choose_json(rng))
    return json.dumps(document).encode()


def _json_places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield container and key of every value."""
    for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        yield node, key
        yield from _json_places(node[key])


def _choose_json(rng: Random) -> Any:
    number = choose_number(rng)
    deep: Any = []
    for _ in range(rng.choice((1, 40, 400))):
        deep = [deep]
    codec = {"id": rng.choice(_CODECS), "name": rng.choice((*_CODECS, *_CODECS_V3)), "configuration": {}}
    choices = (number, number, number / 3, [number], [], {}, None, True, float("nan"), 1e308, deep, codec, [codec])
    return rng.choice((*choices, rng.choice(_TEXTS), rng.choice(_DTYPES)))


def change_npy_header(rng: Random, data: bytes) -> bytes | None:
    """Write another header: shape, dtype, order or text."""
    end = data.find(b"\n")
    if not data.startswith(b"\x93NUMPY") or end < 0:
        return None
    sizes = [choose_number(rng) if rng.random() < 0.4 else rng.randint(0, 8) for _ in range(rng.choice((0, 1, 2, 3)))]
    shape = tuple(sizes) if rng.random() < 0.95 else (1,) * rng.choice((33, 80))
    header = {"descr": rng.choice(_DTYPES), "fortran_order": rng.choice((True, False, 1)), "shape": shape}
    text = repr(header if rng.random() < 0.9 else {**header, "extra": 1}).encode() + b"\n"
    return data[:6] + b"\x01\x00" + len(text).to_bytes(2, "little") + text + data[end + 1 :]


def change_zip_field(rng: Random, data: bytes) -> bytes | None:
    """Write a number to a field of a header, directory entry or end record."""
    headers = [
        (found.start(), nbytes)
        for signature, nbytes in _ZIP_SIGNATURES.items()
        for found in re.finditer(re.escape(signature), data)
    ]
    if not headers:
        return None
    start, nbytes = rng.choice(headers)
    width = rng.choice((2, 4))
    offset = start + 4 + 2 * rng.randrange((nbytes - 4) // 2)
    number = choose_number(rng) % (1 << 8 * width)
    return data[:offset] + number.to_bytes(width, "little") + data[offset + width :]


def rewrite_zip(rng: Random, data: bytes) -> bytes | None:
    """Damage one member, and write the archive again with correct checksums."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info, archive.read(info)) for info in archive.infolist()]
    except Exception:
        return None
    if not members:
        return None
    stream, chosen = io.BytesIO(), rng.randrange(len(members))
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w") as archive:
        warnings.simplefilter("ignore")  # two members of one name are a kind of damage
        for number, (info, content) in enumerate(members):
            if number == chosen:
                content = rng.choice((change_npy_header, damage_bytes))(rng, content) or content
            name = rng.choice(("../canary.npy", "/x.npy", "x")) if rng.random() < 0.05 else info.filename
            archive.writestr(name, content, info.compress_type)
    return stream.getvalue()


def change_tar_header(rng: Random, data: bytes) -> bytes | None:
    """Write a value to a header field, with the old checksum."""
    starts = [start for start in range(0, len(data) - 511, 512) if data[start + 257 : start + 262] == b"ustar"]
    if not starts:
        return None
    start = rng.choice(starts)
    field = rng.choice(list(_TAR_FIELDS))
    offset, nbytes = _TAR_FIELDS[field]
    choices = (_TAR_VALUES, (b"../canary", b"/etc/hostname", b"a.npy", b"a.cls"))[field in ("name", "link")]
    value = bytes([rng.choice(_TAR_TYPES)]) if field == "type" else rng.choice(choices)
    offset += start
    return data[:offset] + value[:nbytes].ljust(nbytes, b"\0") + data[offset + nbytes :]


def forge_tar_header(rng: Random, data: bytes) -> bytes | None:
    """Write a value to a header field, and compute the checksum again."""
    changed = change_tar_header(rng, data)
    if changed is None:
        return None
    blocks = bytearray(changed)
    for start in range(0, len(blocks) - 511, 512):
        if blocks[start : start + 512] != data[start : start + 512]:
            blocks[start + 148 : start + 156] = b" " * 8
            blocks[start + 148 : start + 156] = b"%06o\0 " % sum(blocks[start : start + 512])
    return bytes(blocks)


def reorder_records(rng: Random, data: bytes) -> bytes | None:
    """Drop, repeat and reorder whole records. Each record stays as it is."""
    records = split_records(data)
    return join_records(rng.choices(records, k=rng.randint(0, len(records) + 2))) if records else None


def forge_record(rng: Random, data: bytes) -> bytes | None:
    """Damage one record, and compute its checksums again."""
    records = split_records(data)
    if not records:
        return None
    chosen = rng.randrange(len(records))
    records[chosen] = damage_bytes(rng, records[chosen])
    return join_records(records)


def forge_record_length(rng: Random, data: bytes) -> bytes | None:
    """Write another length to one record, with a correct checksum of the length."""
    records = split_records(data)
    if not records:
        return None
    chosen = rng.randrange(len(records))
    return join_records(records, lengths={chosen: choose_number(rng) % 2**64})


def change_footer(rng: Random, data: bytes) -> bytes | None:
    """Damage the footer of a Parquet or Arrow file, and correct its length."""
    magic = next((magic for magic in (b"PAR1", b"ARROW1") if data.endswith(magic)), None)
    if magic is None:
        return None
    end = len(data) - len(magic) - 4
    (nbytes,) = struct.unpack_from("<I", data, end)
    footer = damage_bytes(rng, data[max(0, end - nbytes) : end])
    return data[: max(0, end - nbytes)] + footer + struct.pack("<I", len(footer)) + magic


def forge_png_chunk(rng: Random, data: bytes) -> bytes | None:
    """Damage one chunk of a PNG, and compute its CRC again."""
    chunks, offset = [], 8
    while offset + 12 <= len(data):
        (nbytes,) = struct.unpack_from(">I", data, offset)
        chunks.append((data[offset + 4 : offset + 8], data[offset + 8 : offset + 8 + nbytes]))
        offset += nbytes + 12
    if not data.startswith(b"\x89PNG") or not chunks:
        return None
    chosen, out = rng.randrange(len(chunks)), data[:8]
    for number, (kind, content) in enumerate(chunks):
        if number == chosen:
            content = damage_bytes(rng, content)
        out += struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    return out


def change_token(rng: Random, data: bytes) -> bytes | None:
    """Replace one number of a text table by an unusual token."""
    tokens = re.split(rb"([,\s]+)", data)
    chosen = rng.randrange(len(tokens))
    tokens[chosen] = rng.choice(_CSV_TOKENS)
    return b"".join(tokens)


_JSON = (StructureDamage(change_json),)
_TAR = (StructureDamage(change_tar_header), StructureDamage(forge_tar_header, forges=True))
_RECORDS = (
    StructureDamage(reorder_records, forges=True),
    StructureDamage(forge_record, forges=True),
    StructureDamage(forge_record_length, forges=True),
)
# Pattern of the file name -> functions, for plain files and for the content of gzip files.
_BY_NAME: dict[str, tuple[StructureDamage, ...]] = {
    r"(zarr\.json|\.zarray|\.zgroup|\.zattrs|\.zmetadata|capture\.gz)$": _JSON,
    r"\.npy$": (StructureDamage(change_npy_header),),
    r"\.npz$": (StructureDamage(change_zip_field), StructureDamage(rewrite_zip, forges=True)),
    r"\.(tar|tgz|tar\.gz)$": _TAR,
    r"\.tfrecord(\.gz)?$": _RECORDS,
    r"\.(parquet|arrow|feather)$": (StructureDamage(change_footer),),
    r"\.png$": (StructureDamage(forge_png_chunk, forges=True),),
    r"\.(csv|txt)$": (StructureDamage(change_token),),
}

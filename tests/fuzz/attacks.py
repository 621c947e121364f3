"""Files that try to do harm: run code, read other files, or fill the memory.

If a payload runs, it creates the folder `EXECUTED`; `guard.py` looks for it. Links and external storage point to
`CANARY`, a file outside of the folder of the case. Bombs are small files that claim or inflate to more than the memory
budget.
"""

import gzip
import io
import json
import os
import pickle
import tarfile
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.fuzz.bombs import gzip_bomb, zip_bomb, zlib_bomb
from tests.fuzz.sample import Files, Sample, npy_bytes

__all__ = ["CANARY", "CANARY_TEXT", "EXECUTED", "make_attacks"]

EXECUTED, CANARY = "../executed", "../canary"  # relative to the folder of the case
CANARY_TEXT = b"THE-CONTENT-OF-ANOTHER-FILE-9137"  # 32 bytes
_BOMB_MIB = 384  # MiB; more than the memory budget of a case
_BOMB_NBYTES = _BOMB_MIB << 20
_EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


class _Payload:
    """An object that creates a folder when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (EXECUTED,)


def make_attacks() -> Iterator[Sample]:
    """Yield all attacks."""
    payload = pickle.dumps(_Payload())
    objects = npy_bytes(np.array([_Payload()], dtype=object), allow_pickle=True)
    yield Sample("pickle as npy", {"x.npy": payload}, "x.npy")
    yield Sample("objects in npy", {"x.npy": objects}, "x.npy")
    yield Sample("80 dimensions in npy", {"x.npy": _npy_claim((1,) * 80)}, "x.npy")
    yield Sample("npy of 2**60 rows", {"x.npy": _npy_claim((2**60,))}, "x.npy")
    yield Sample("objects in npz", {"x.npz": _zip({"x.npy": objects})}, "x.npz")
    yield Sample("npz bomb", {"x.npz": zip_bomb(b"x.npy", _npy_claim((_BOMB_NBYTES,)), _BOMB_MIB)}, "x.npz")
    yield from _attack_zarr(payload)
    yield from _attack_hdf5()
    yield from _attack_images()
    yield from _attack_archives(objects)
    yield from _attack_captures()


def _npy_claim(shape: tuple[int, ...]) -> bytes:
    text = repr({"descr": "|u1", "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def _zip(members: Files) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def _attack_zarr(payload: bytes) -> Iterator[Sample]:
    for dtype in ("<f4", "|V4", "|S4", "|O"):
        for place in ("compressor", "filters"):
            codec = {"id": "pickle", "protocol": 5}
            meta = _zarr_v2(dtype) | {place: codec if place == "compressor" else [codec]}
            yield Sample(f"zarr pickle {place} {dtype}", _store({".zarray": meta}, {"0": payload}), "x.zarr")
    for name in ("numcodecs.pickle", "pickle", "numcodecs.json2"):
        files = _store({"zarr.json": _zarr_v3([4], [4], {"name": name, "configuration": {}})}, {"c/0": payload})
        yield Sample(f"zarr v3 {name}", files, "x.zarr")
    gzip_codec = {"name": "gzip", "configuration": {"level": 5}}
    gzip_files = _store({"zarr.json": _zarr_v3([4], [4], gzip_codec)}, {"c/0": gzip_bomb(b"", _BOMB_MIB)})
    yield Sample("zarr gzip bomb", gzip_files, "x.zarr")
    zlib_meta = _zarr_v2("<f4") | {"compressor": {"id": "zlib", "level": 1}}
    yield Sample("zarr v2 zlib bomb", _store({".zarray": zlib_meta}, {"0": zlib_bomb(_BOMB_MIB)}), "x.zarr")
    yield Sample("zarr of 2**40 chunks", _store({"zarr.json": _zarr_v3([2**40], [1])}, {}), "x.zarr")
    yield Sample("zarr of 2**40 columns", _store({"zarr.json": _zarr_v3([4, 2**40], [4, 1])}, {}), "x.zarr")
    yield Sample("zarr with a chunk of 2**40", _store({"zarr.json": _zarr_v3([2**40], [2**40])}, {}), "x.zarr")


def _store(metadata: dict[str, Any], chunks: Files) -> Files:
    files = {f"x.zarr/{name}": json.dumps(content).encode() for name, content in metadata.items()}
    return files | {f"x.zarr/{name}": content for name, content in chunks.items()}


def _zarr_v2(dtype: str) -> dict[str, Any]:
    fields = {"shape": [4], "chunks": [4], "compressor": None, "fill_value": None, "order": "C", "filters": None}
    return {"zarr_format": 2, "dtype": dtype, **fields}


def _zarr_v3(shape: list[int], chunk: list[int], *codecs: dict[str, Any]) -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, *codecs],
        "attributes": {},
    }


def _attack_hdf5() -> Iterator[Sample]:
    import h5py

    def sample(name: str, fill: Any) -> Sample:
        stream = io.BytesIO()
        with h5py.File(stream, "w") as file:
            fill(file)
        return Sample(name, {"x.h5": stream.getvalue()}, "x.h5")

    def external(file: Any) -> None:
        file.create_dataset("x", shape=(32,), dtype="u1", external=[(CANARY, 0, 32)])

    def virtual(file: Any) -> None:
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource(f"{CANARY}.h5", "x", (4,))
        file.create_virtual_dataset("x", layout)

    def many_chunks(file: Any) -> None:
        file.create_dataset("x", shape=(2**40,), chunks=(1,), dtype="u1", compression="gzip")

    def bomb(file: Any) -> None:
        file.create_dataset("x", shape=(_BOMB_NBYTES,), chunks=(_BOMB_NBYTES,), dtype="u1", compression="gzip")
        file["x"].id.write_direct_chunk((0,), zlib_bomb(_BOMB_MIB))

    yield sample("hdf5 external storage", external)
    yield sample("hdf5 virtual dataset", virtual)
    yield sample("hdf5 external link", lambda file: file.__setitem__("x", h5py.ExternalLink(f"{CANARY}.h5", "x")))
    yield sample("hdf5 soft link to itself", lambda file: file.__setitem__("x", h5py.SoftLink("/x")))
    yield sample("hdf5 of 2**40 chunks", many_chunks)
    yield sample("hdf5 gzip bomb", bomb)


def _attack_images() -> Iterator[Sample]:
    from PIL import Image

    for suffix in ("png", "jpg", "tif"):
        yield Sample(f"PostScript as {suffix}", {f"x.{suffix}": _EPS}, f"x.{suffix}")
    stream = io.BytesIO()
    Image.new("1", (40_000, 40_000)).save(stream, "PNG")
    yield Sample("png of 1.6 gigapixels", {"x.png": stream.getvalue()}, "x.png")
    stream = io.BytesIO()
    Image.new("1", (9_000, 9_000)).save(stream, "PNG")
    yield Sample("png of 81 megapixels, resized", {"x.png": stream.getvalue()}, "x.png", {"size": (4, 4)})


def _attack_archives(objects: bytes) -> Iterator[Sample]:
    from tests.fuzz.frames import example, join_records

    yield Sample("objects in tar", {"x.tar": _tar({"0.npy": objects, "1.npy": objects})}, "x.tar")
    yield Sample("PostScript in tar", {"x.tar": _tar({"0.png": _EPS, "1.png": _EPS})}, "x.tar")
    for name, kind in {"symbolic": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE}.items():
        yield Sample(f"{name} link in tar", {"x.tar": _tar({"0.cls": b"1"}, link=kind)}, "x.tar")
    yield Sample("named pipe in tar", {"x.tar": _tar({"0.cls": b"1"}, link=tarfile.FIFOTYPE)}, "x.tar")
    yield Sample("tar.gz bomb", {"x.tar.gz": gzip_bomb(_tar({"0.cls": b"1"}), _BOMB_MIB)}, "x.tar.gz")
    record = example([0.0] * 3, 1, b"x")
    records = gzip_bomb(join_records([record]), _BOMB_MIB)
    yield Sample("tfrecord.gz bomb", {"x.tfrecord.gz": records}, "x.tfrecord.gz", {"members": ["x"]})
    claim = join_records([record], lengths={0: 2**40})
    yield Sample("tfrecord of 2**40 bytes", {"x.tfrecord": claim}, "x.tfrecord", {"members": ["x"]})


def _tar(members: Files, link: bytes = b"") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        if link:
            info = tarfile.TarInfo("1.cls")
            info.type, info.linkname = link, CANARY
            archive.addfile(info)
    return stream.getvalue()


def _attack_captures() -> Iterator[Sample]:
    texts = {
        "deep list": b"[" * 200_000,
        "deep object": b'{"a":' * 50_000,
        "number": b"3",
        "long number": b'{"capture_version": ' + b"9" * 5000 + b"}",
        "no text": b"\xff\xfe\x00",
    }
    packed = {name: gzip.compress(text, mtime=0) for name, text in texts.items()}
    packed["bomb"] = gzip_bomb(b'{"capture_version": 1, "x": "', _BOMB_MIB, b"a")
    for name, data in packed.items():
        yield Sample(f"capture: {name}", {"capture.gz": data}, "capture.gz", reader="capture")

"""One list of undamaged samples for each format, made by its usual libraries."""

import gzip
import io
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.attacks import make_attacks
from tests.fuzz.sample import WHOLE_FILE, Files, Sample, array_rows, npy_bytes

__all__ = ["FORMATS", "load_samples"]

_RECORDED = Path(__file__).parents[1] / "doctor" / "recorded"
_CAPTURES = ("torch/*.gz", "tensorflow/*.gz", "jax/*.gz", "cupy/*.gz")
_LABELS = np.arange(24) % 5
_ZARR_CHECKSUMS = ("crc32c", "gzip", "zlib", "bz2")  # codecs whose data has a checksum


@cache
def load_samples(name: str) -> tuple[Sample, ...]:
    """Return the samples of a format. The first call makes them."""
    return tuple(FORMATS[name]())


def _npy() -> Iterator[Sample]:
    for name, array in {
        "c": array_rows(),
        "fortran": np.asfortranarray(array_rows()),
        "big-endian": array_rows().astype(">f8"),
        "fields": np.zeros(24, [("a", "<f4", (2,)), ("b", "<i8")]),
        "text": np.array(["ab", "cde"] * 12),
    }.items():
        yield Sample(name, {"x.npy": npy_bytes(array)}, "x.npy")
    two = {f"{number}.npy": npy_bytes(array_rows() + number) for number in range(2)}
    yield Sample("two files", two, "*.npy")


def _npz() -> Iterator[Sample]:
    for name, method in {"stored": zipfile.ZIP_STORED, "deflated": zipfile.ZIP_DEFLATED}.items():
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", method) as archive:
            archive.writestr("x.npy", npy_bytes(array_rows()))
            archive.writestr("y.npy", npy_bytes(_LABELS))
        data = stream.getvalue()
        # Forebay verifies no CRC of a stored member, because that would read all of its data.
        checked = {"x.npz": tuple(_zip_data(data))} if name == "deflated" else {}
        yield Sample(name, {"x.npz": data}, "x.npz", checked=checked)


def _zip_data(data: bytes) -> Iterator[tuple[int, int]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            start = info.header_offset + 30 + len(info.filename)
            yield start, start + info.compress_size


def _csv() -> Iterator[Sample]:
    lines = [f"{a},{b:.3f},{c}" for a, (b, c) in enumerate(np.random.default_rng(0).normal(size=(24, 2)))]
    for name, text in {
        "plain": "\n".join(lines) + "\n",
        "header": "\n".join(["a,b,c", *lines]),
        "windows": "\r\n".join(lines),
        "integers": "\n".join(f"{n},{n * n}" for n in range(24)),
    }.items():
        yield Sample(name, {"x.csv": text.encode()}, "x.csv")
    yield Sample("semicolons", {"x.csv": text.replace(",", ";").encode()}, "x.csv", {"delimiter": ";"})


def _txt() -> Iterator[Sample]:
    yield Sample("numbers", {"x.txt": b"\n".join(b"%d %d.5" % (n, n) for n in range(24))}, "x.txt")
    yield Sample("comments", {"x.txt": b"# a b\n" + b"\n".join(b"%d\t%d" % (n, n) for n in range(24))}, "x.txt")


def _bin() -> Iterator[Sample]:
    import forebay as fb

    data = b"head" + array_rows().tobytes()
    options = {"spec": fb.ArraySpec((3,), "f4"), "skip_nbytes": 4}
    yield Sample("floats", {"x.bin": data}, "x.bin", options)
    yield Sample("swapped", {"x.bin": data}, "x.bin", options | {"byteorder": "big"})


def _hdf5() -> Iterator[Sample]:
    import h5py

    for name, options in {
        "contiguous": {},
        "chunked": {"chunks": (5, 2)},
        "gzip": {"chunks": (8, 3), "compression": "gzip", "shuffle": True},
        "lzf": {"chunks": (8, 3), "compression": "lzf"},
        "fletcher32": {"chunks": (8, 3), "fletcher32": True},
    }.items():
        stream = io.BytesIO()
        with h5py.File(stream, "w") as file:
            file.create_dataset("train/x", data=array_rows(), **options)
            file.create_dataset("y", data=_LABELS)
        checked = {"x.h5": tuple(_hdf5_chunks(stream))} if name in ("fletcher32", "gzip") else {}
        yield Sample(name, {"x.h5": stream.getvalue()}, "x.h5", checked=checked)
    stream = io.BytesIO()
    with h5py.File(stream, "w", libver="latest") as file:
        file.create_dataset("x", data=array_rows(), chunks=(4, 3), maxshape=(None, 3))
        file["fields"] = np.zeros(24, [("a", "<f4", (2,)), ("b", ">i8")])
        file.create_dataset("scaled", data=_LABELS, chunks=(8,), scaleoffset=0)
    yield Sample("latest", {"x.h5": stream.getvalue()}, "x.h5")


def _hdf5_chunks(stream: io.BytesIO) -> Iterator[tuple[int, int]]:
    import h5py

    with h5py.File(stream, "r") as file:
        chunks = file["train/x"].id
        for number in range(chunks.get_num_chunks()):
            info = chunks.get_chunk_info(number)
            yield info.byte_offset, info.byte_offset + info.size


def _table() -> Any:
    import pyarrow as pa

    lists = pa.FixedSizeListArray.from_arrays(pa.array(array_rows().ravel()), 3)
    return pa.table({"x": lists, "y": _LABELS, "flag": _LABELS > 2})


def _list_table() -> Any:
    """Return a table of lists of equal length. The type of the column does not contain this length."""
    import pyarrow as pa

    return pa.table({"x": pa.array(array_rows().tolist(), pa.list_(pa.float32()))})


def _list_spec() -> dict[str, Any]:
    import forebay as fb

    return {"spec": {"x": fb.ArraySpec((3,), "f4")}}


def _parquet() -> Iterator[Sample]:
    import pyarrow.parquet as pq

    for name, options in {
        "plain": {"compression": "none", "use_dictionary": False},
        "snappy": {"compression": "snappy", "row_group_size": 10},
        "zstd": {"compression": "zstd", "data_page_version": "2.0"},
        "gzip": {"compression": "gzip"},
        "checksums": {"compression": "none", "write_page_checksum": True},
    }.items():
        stream = io.BytesIO()
        pq.write_table(_table(), stream, **options)
        yield Sample(name, {"x.parquet": stream.getvalue()}, "x.parquet")
    stream = io.BytesIO()
    pq.write_table(_list_table(), stream)
    yield Sample("lists", {"x.parquet": stream.getvalue()}, "x.parquet", _list_spec())


def _arrow() -> Iterator[Sample]:
    import pyarrow as pa

    for name, compression in {"plain": None, "lz4": "lz4", "zstd": "zstd"}.items():
        stream = io.BytesIO()
        with pa.ipc.new_file(stream, _table().schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as file:
            file.write_table(_table(), max_chunksize=10)
        yield Sample(name, {"x.arrow": stream.getvalue()}, "x.arrow")
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, _table().schema) as file:
        file.write_table(_table())
    yield Sample("stream", {"x.arrow": stream.getvalue()}, "x.arrow")
    stream = io.BytesIO()
    with pa.ipc.new_file(stream, _list_table().schema) as file:
        file.write_table(_list_table())
    yield Sample("lists", {"x.arrow": stream.getvalue()}, "x.arrow", _list_spec())


def _zarr() -> Iterator[Sample]:
    import numcodecs
    import zarr
    from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

    v2: dict[str, Any] = {
        "none": None,
        "zlib": numcodecs.Zlib(),
        "blosc": numcodecs.Blosc(),
        "lz4": numcodecs.LZ4(),
        "bz2": numcodecs.BZ2(),
    }
    v3: dict[str, Any] = {
        "none": None,
        "gzip": GzipCodec(),
        "zstd": ZstdCodec(),
        "blosc": BloscCodec(),
        "crc32c": Crc32cCodec(),
    }
    for version, codecs in ((2, v2), (3, v3)):
        for name, codec in codecs.items():
            store: dict[str, Any] = {}
            group = zarr.open_group(store, mode="w", zarr_format=version)
            compression = {"compressors": [codec] if codec is not None else None}
            group.create_array("x", shape=(24, 3), chunks=(7, 3), dtype="f4", **compression)[...] = array_rows()
            group.create_array("y", shape=(24,), chunks=(12,), dtype="i8")[...] = _LABELS
            files = {f"x.zarr/{key}": value.to_bytes() for key, value in store.items()}
            chunks = [path for path in files if re.search(r"/x/(c/)?\d", path)]
            checked = dict.fromkeys(chunks, WHOLE_FILE) if name in _ZARR_CHECKSUMS else {}
            yield Sample(f"v{version} {name}", files, "x.zarr", checked=checked)
    others: dict[str, dict[str, Any]] = {
        "v3 sharded": {"chunks": (2, 3), "shards": (8, 3), "dtype": "f4"},
        "v2 filters": {"chunks": (5, 2), "dtype": ">i8", "filters": numcodecs.Delta(">i8"), "zarr_format": 2},
        "v2 fortran": {"chunks": (5, 2), "dtype": "f4", "order": "F", "zarr_format": 2},
        "v3 transpose": {"chunks": (5, 2), "dtype": "f8", "filters": [TransposeCodec(order=(1, 0))]},
    }
    for name, options in others.items():
        store = {}
        zarr.create_array(store, shape=(24, 3), **options)[...] = array_rows()
        yield Sample(name, {f"x.zarr/{key}": value.to_bytes() for key, value in store.items()}, "x.zarr")


def _tar() -> Iterator[Sample]:
    data = _tar_bytes({f"{row:03}": row for row in range(6)})
    starts = [start for start in range(0, len(data), 512) if data[start + 257 : start + 262] == b"ustar"]
    headers = {"x.tar": tuple((start, start + 512) for start in starts)}
    yield Sample("plain", {"x.tar": data}, "x.tar", checked=headers)
    packed = gzip.compress(data, mtime=0)
    yield Sample("gzip", {"x.tar.gz": packed}, "x.tar.gz", checked={"x.tar.gz": WHOLE_FILE})
    yield Sample("long names", {"x.tar": _tar_bytes({"long/" * 30 + f"{row}": row for row in range(3)})}, "x.tar")


def _tar_bytes(samples: dict[str, int]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, row in samples.items():
            image = _image_bytes("PNG", np.full((6, 5, 3), row, "u1"))
            for extension, content in {"npy": npy_bytes(array_rows()[row]), "cls": b"%d" % row, "png": image}.items():
                info = tarfile.TarInfo(f"{name}.{extension}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def _tfrecord() -> Iterator[Sample]:
    from tests.fuzz.frames import example, join_records

    data = join_records([example(row.tolist(), n, b"%04d" % n) for n, row in enumerate(array_rows())])
    checks: dict[str, Any] = {"has_row_checksums": True}
    options = {"members": ["x", "label"]}
    yield Sample("plain", {"x.tfrecord": data}, "x.tfrecord", options, checked={"x.tfrecord": WHOLE_FILE}, **checks)
    packed = {"x.tfrecord.gz": gzip.compress(data, mtime=0)}
    checked = {"x.tfrecord.gz": WHOLE_FILE}
    yield Sample("gzip", packed, "x.tfrecord.gz", options, checked=checked, **checks)


def _images() -> Iterator[Sample]:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype="u1")
    for kind, suffix in {
        "PNG": "png",
        "JPEG": "jpg",
        "WEBP": "webp",
        "BMP": "bmp",
        "TIFF": "tif",
        "GIF": "gif",
    }.items():
        files = {f"{number}.{suffix}": _image_bytes(kind, pixels + number) for number in range(2)}
        yield Sample(kind.lower(), files, f"*.{suffix}")
        yield Sample(f"{kind.lower()} resized", files, f"*.{suffix}", {"size": (4, 4), "channels": 3})
    variants: dict[str, tuple[str, dict[str, Any]]] = {
        "lzw.tiff": ("TIFF", {"compression": "tiff_lzw"}),
        "deflate.tiff": ("TIFF", {"compression": "tiff_adobe_deflate"}),
        "jpeg.tiff": ("TIFF", {"compression": "jpeg"}),
        "progressive.jpg": ("JPEG", {"progressive": True}),
        "lossless.webp": ("WEBP", {"lossless": True}),
    }
    for name, (kind, options) in variants.items():
        yield Sample(name, {name: _image_bytes(kind, pixels, **options)}, name)


def _image_bytes(kind: str, pixels: np.ndarray[Any, Any], **options: Any) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, **options)
    return stream.getvalue()


def _capture() -> Iterator[Sample]:
    """Yield the smallest recorded captures, so that most cases take milliseconds."""
    for pattern in _CAPTURES:
        smallest = sorted(_RECORDED.glob(pattern), key=lambda path: path.stat().st_size)[:3]
        for path in smallest:
            files: Files = {"capture.gz": path.read_bytes()}
            yield Sample(f"{path.parent.name} {path.stem}", files, "capture.gz", reader="capture")


FORMATS: dict[str, Callable[[], Iterator[Sample]]] = {
    "npy": _npy,
    "npz": _npz,
    "csv": _csv,
    "txt": _txt,
    "bin": _bin,
    "hdf5": _hdf5,
    "parquet": _parquet,
    "arrow": _arrow,
    "zarr": _zarr,
    "tar": _tar,
    "tfrecord": _tfrecord,
    "images": _images,
    "capture": _capture,
    "attacks": make_attacks,
}

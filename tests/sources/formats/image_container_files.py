"""Files of every format that contain the same images, with labels and class names."""

import io
import tarfile

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.sources.formats import tfrecord_files

from forebay.sources.formats.image_options import ImageOptions
from forebay.sources.formats.images import ImageColumns, open_labelled_images

ROWS = 24
NAMES = ("ant", "bee", "cat")
OPTIONS = ImageOptions(channels=3, upright=True)


def make_images(seed=0, rows=ROWS):
    return np.random.default_rng(seed).integers(0, 256, (rows, 5, 7, 3), dtype=np.uint8)


def encode(image):
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "PNG")
    return stream.getvalue()


def labels_of(rows=ROWS):
    return [number % 3 for number in range(rows)]


def write_tar(path, encoded, labels):
    with tarfile.open(path, "w") as archive:
        for number, (data, label) in enumerate(zip(encoded, labels, strict=True)):
            folder = NAMES[label]
            for extension, content in (("png", data), ("cls", str(label).encode()), ("txt", folder.encode())):
                info = tarfile.TarInfo(f"{folder}/{number:04}.{extension}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))


def make_table(encoded, labels):
    images = pa.array([{"bytes": data, "path": f"{number}.png"} for number, data in enumerate(encoded)])
    names = pa.array([NAMES[label] for label in labels])
    return pa.table({"id": list(range(len(labels))), "image": images, "label": labels, "name": names})


def write_parquet(path, encoded, labels):
    pq.write_table(make_table(encoded, labels), path, row_group_size=5)


def write_arrow(path, encoded, labels):
    feather.write_feather(make_table(encoded, labels), path, compression="uncompressed", chunksize=5)


def write_compressed_arrow(path, encoded, labels):
    feather.write_feather(make_table(encoded, labels), path, compression="zstd", chunksize=5)


def write_tfrecord(path, encoded, labels):
    records = [
        tfrecord_files.example(
            image=tfrecord_files.raw(data),
            label=tfrecord_files.ints(label),
            name=tfrecord_files.raw(NAMES[label].encode()),
        )
        for data, label in zip(encoded, labels, strict=True)
    ]
    tfrecord_files.write(path, *records)


def write_hdf5(path, encoded, labels):
    with h5py.File(path, "w") as file:
        images = file.create_dataset("image", len(encoded), h5py.vlen_dtype("u1"))
        for number, data in enumerate(encoded):
            images[number] = np.frombuffer(data, "u1")
        file["label"] = labels
        file["name"] = [NAMES[label] for label in labels]


def write_hdf5_matrix(path, encoded, labels):
    longest = max(map(len, encoded))
    with h5py.File(path, "w") as file:
        rows = [np.frombuffer(data.ljust(longest, b"\0"), "u1") for data in encoded]
        file.create_dataset("image", data=np.stack(rows), compression="gzip")
        file["label"] = labels
        file["name"] = [NAMES[label] for label in labels]


def write_lmdb(path, encoded, labels):
    with open_lmdb(path) as environment, environment.begin(write=True) as transaction:
        for number, (data, label) in enumerate(zip(encoded, labels, strict=True)):
            transaction.put(f"image-{number:09}".encode(), data)
            transaction.put(f"label-{number:09}".encode(), str(label).encode())
            transaction.put(f"name-{number:09}".encode(), NAMES[label].encode())
        transaction.put(b"num-samples", str(len(encoded)).encode())


def open_lmdb(path, **options):
    return lmdb.open(str(path), subdir=False, map_size=1 << 28, lock=False, **options)


# Format: suffix, writer, image column, label column, column of class names.
FORMATS = {
    "tar": (".tar", write_tar, None, "cls", "txt"),
    "parquet": (".parquet", write_parquet, None, "label", "name"),
    "arrow": (".arrow", write_arrow, None, "label", "name"),
    "compressed-arrow": (".arrow", write_compressed_arrow, None, "label", "name"),
    "tfrecord": (".tfrecord", write_tfrecord, None, "label", "name"),
    "hdf5": (".h5", write_hdf5, None, "label", "name"),
    "hdf5-matrix": (".h5", write_hdf5_matrix, None, "label", "name"),
    "lmdb": (".mdb", write_lmdb, "image-", "label-", "name-"),
}
each_format = pytest.mark.parametrize("name", FORMATS)


def write(folder, name, seed=0, stem="images", rows=ROWS):
    """Write a file and return its path and pixels."""
    suffix, writer = FORMATS[name][:2]
    images = make_images(seed, rows)
    writer(folder / f"{stem}{suffix}", [encode(image) for image in images], labels_of(rows))
    return folder / f"{stem}{suffix}", images


def open_format(path, name, label=None, class_names=None):
    return open_labelled_images(path, OPTIONS, ImageColumns(FORMATS[name][2], label, class_names), "pillow")


def read_all(source):
    out = [spec.empty(len(source)) for spec in source.specs]
    source.gather(np.arange(len(source)), out)
    return out

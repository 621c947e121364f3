"""Damaged files with images give rows or an error, and stay within the budget."""

import contextlib
import gzip
import struct

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sources.formats.image_container_files import (
    FORMATS,
    OPTIONS,
    ROWS,
    each_format,
    encode,
    labels_of,
    make_images,
    open_format,
    open_lmdb,
    read_all,
    write,
)

import forebay as fb
from forebay.errors import BudgetError, ForebayError, SourceError
from forebay.sources.formats.images import ImageColumns, open_labelled_images


@each_format
def test_the_error_names_a_damaged_image(tmp_path, name):
    suffix, writer, column = FORMATS[name][:3]
    encoded = [encode(image) for image in make_images()]
    encoded[3] = encoded[3][:20].ljust(len(encoded[3]), b"\0")
    path = tmp_path / f"images{suffix}"
    writer(path, encoded, labels_of())
    source = open_labelled_images(path, OPTIONS, ImageColumns(column), "pillow")
    with pytest.raises(SourceError, match=rf"3.*{path.name} cannot be decoded"):
        read_all(source)


def damage(data):
    """Yield the data with a wrong byte, or without its end."""
    random = np.random.default_rng(5)
    for position in random.integers(0, len(data), 60).tolist():
        damaged = bytearray(data)
        damaged[position] ^= int(random.integers(1, 256))
        yield damaged
    for length in np.linspace(0, len(data) - 1, 15).astype(int).tolist():
        yield data[:length]


@each_format
def test_a_damaged_file_gives_rows_or_an_error_of_forebay(tmp_path, name):
    path, images = write(tmp_path, name, rows=6)
    for damaged in damage(path.read_bytes()):
        path.write_bytes(damaged)
        with contextlib.suppress(ForebayError):
            pixels, _ = read_all(open_format(path, name, FORMATS[name][3]))
            assert pixels.shape == images.shape or name in ("tar", "lmdb")  # a tar file may lose a member


@each_format
def test_a_file_that_shrinks_after_it_is_opened_raises_an_error(tmp_path, name):
    path, _ = write(tmp_path, name)
    source = open_format(path, name)
    with path.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(SourceError):
        read_all(source)


def test_row_groups_stay_within_the_budget(tmp_path):
    path, images = write(tmp_path, "parquet", rows=200)
    budget = 8000  # bytes; a row group has about 1,000
    pipeline = fb.from_images(path, label="label", max_held_bytes=budget).shuffle(seed=0).batch(10)
    source = pipeline.source
    for batch in pipeline.feed("numpy"):
        assert len(batch["image"]) == 10
        assert 0 < source.held_nbytes <= budget
    assert source.shuffle_blocks.rows == 5
    assert np.asarray(read_all(source)[0]).tobytes() == images.tobytes()


def test_the_error_names_a_null_image(tmp_path):
    data = [encode(image) for image in make_images(rows=2)]
    pq.write_table(pa.table({"image": [*data, None]}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"row 2 of 'image' in .* is null"):
        list(fb.from_images(tmp_path / "a.parquet").batch(3).feed("numpy"))


def test_lmdb_pages_that_form_a_cycle_are_refused(tmp_path):
    path = tmp_path / "a.mdb"
    with open_lmdb(path) as environment, environment.begin(write=True) as transaction:
        for number in range(2000):
            transaction.put(f"{number:06}".encode(), b"x" * 100)
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):
        if struct.unpack_from("<H", data, page * 4096 + 10)[0] & 1:  # the branch page becomes its own first child
            (node,) = struct.unpack_from("<H", data, page * 4096 + 16)
            struct.pack_into("<H", data, page * 4096 + node, page)
    path.write_bytes(data)
    with pytest.raises(SourceError, match="cannot be read as LMDB"):
        fb.from_images(path)


def test_row_groups_of_one_row_count_as_held(tmp_path):
    data = [encode(image) for image in make_images(rows=50)]
    pq.write_table(pa.table({"image": data}), tmp_path / "a.parquet", row_group_size=1)
    source = fb.from_images(tmp_path / "a.parquet", max_held_bytes=1000).source
    read_all(source)
    assert 0 < source.held_nbytes <= 1000


def test_a_value_that_is_stored_once_for_many_rows_stays_within_the_budget(tmp_path):
    noise = encode(np.random.default_rng(0).integers(0, 255, (800, 800, 3), dtype=np.uint8))
    pq.write_table(pa.table({"image": [noise] * 100}), tmp_path / "a.parquet", use_dictionary=True)
    assert (tmp_path / "a.parquet").stat().st_size < 2 * len(noise)
    with pytest.raises(BudgetError, match="repeats its values"):
        fb.from_images(tmp_path / "a.parquet", max_held_bytes="64MiB")


def test_a_page_whose_entries_repeat_is_refused(tmp_path):
    path = tmp_path / "a.mdb"
    with open_lmdb(path) as environment, environment.begin(write=True) as transaction:
        for number in range(10):
            transaction.put(f"{number}".encode(), b"x" * 100)
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):
        if struct.unpack_from("<H", data, page * 4096 + 10)[0] & 2:  # all entries of the leaf page become the first
            (node,) = struct.unpack_from("<H", data, page * 4096 + 16)
            for number in range(10):
                struct.pack_into("<H", data, page * 4096 + 16 + 2 * number, node)
    path.write_bytes(data)
    with pytest.raises(SourceError, match="is not in order"):
        fb.from_images(path)


@pytest.mark.parametrize("what", ["a large chunk", "many labels"])
def test_an_hdf5_file_that_claims_much_memory_is_refused(tmp_path, what):
    rows = 2**25
    with h5py.File(tmp_path / "a.h5", "w") as file:
        if what == "a large chunk":
            file.create_dataset("image", (4000, 50_000), "u1", chunks=(4000, 50_000), compression="gzip")
        else:
            file.create_dataset("image", (rows, 2), "u1", chunks=(1024, 2), compression="gzip")
            file.create_dataset("label", (rows,), "i8", chunks=(1024,), compression="gzip")
    with pytest.raises(BudgetError, match="claims"):
        fb.from_images(tmp_path / "a.h5", label=None if what == "a large chunk" else "label", max_held_bytes="64MiB")


@pytest.mark.slow
def test_archives_that_are_decompressed_share_the_budget(tmp_path):
    path, _ = write(tmp_path, "tar")
    (tmp_path / "a.tar").write_bytes(path.read_bytes() + bytes(40 << 20))
    for name in ("a", "b"):
        (tmp_path / f"{name}.tar.gz").write_bytes(gzip.compress((tmp_path / "a.tar").read_bytes()))
    assert len(fb.from_images(tmp_path / "a.tar.gz", max_held_bytes="64MiB").source) == ROWS
    with pytest.raises(BudgetError, match="decompressed as a whole"):
        fb.from_images(tmp_path / "*.tar.gz", max_held_bytes="64MiB")

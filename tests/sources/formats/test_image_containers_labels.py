"""Labels and class names of images inside files of every format."""

import io
import json
import struct
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sources.formats import tfrecord_files
from tests.sources.formats.image_container_files import (
    FORMATS,
    NAMES,
    ROWS,
    each_format,
    encode,
    labels_of,
    make_images,
    make_table,
    open_format,
    open_lmdb,
    read_all,
    write,
)

import forebay as fb
from forebay.errors import SourceError, SpecError


@each_format
def test_labels_are_read_with_the_images(tmp_path, name):
    path, images = write(tmp_path, name)
    source = open_format(path, name, FORMATS[name][3])
    pixels, labels = read_all(source)
    np.testing.assert_array_equal(pixels, images)
    assert labels.tolist() == labels_of()
    assert source.class_names == ()


@each_format
def test_class_names_are_numbered_in_sorted_order(tmp_path, name):
    path, _ = write(tmp_path, name)
    source = open_format(path, name, FORMATS[name][4])
    assert source.class_names == NAMES
    assert read_all(source)[1].tolist() == labels_of()


@each_format
def test_class_names_select_classes(tmp_path, name):
    path, images = write(tmp_path, name)
    source = open_format(path, name, FORMATS[name][4], ["cat", "ant"])
    pixels, labels = read_all(source)
    kept = [number for number, label in enumerate(labels_of()) if label != 1]
    np.testing.assert_array_equal(pixels, images[kept])
    assert labels.tolist() == [{2: 0, 0: 1}[labels_of()[number]] for number in kept]
    assert "images left out" in {decision.name for decision in source.decisions()}


@pytest.mark.parametrize("label", ["folder", lambda path: path.parent.name])
def test_the_folders_of_members_are_labels(tmp_path, label):
    path, _ = write(tmp_path, "tar")
    assert read_all(open_format(path, "tar", label))[1].tolist() == labels_of()


@pytest.mark.parametrize("name", ["parquet", "tfrecord", "hdf5"])
def test_a_function_of_a_path_is_refused_for_rows_without_a_path(tmp_path, name):
    path, _ = write(tmp_path, name)
    with pytest.raises(SourceError, match="have no path"):
        open_format(path, name, lambda path: 0)


def test_class_names_of_hugging_face_datasets_are_read(tmp_path):
    table = make_table([encode(image) for image in make_images()], labels_of())
    features = {"label": {"names": ["x", "y", "z", "unused"], "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    pipeline = fb.from_images(tmp_path / "a.parquet", label="label")
    assert pipeline.class_names == ("x", "y", "z", "unused")
    chosen = fb.from_images(tmp_path / "a.parquet", label="label", class_names=["z"])
    assert next(iter(chosen.batch(8).feed("numpy")))["label"].tolist() == [0] * 8


def test_files_with_different_class_names_are_refused(tmp_path):
    table = make_table([encode(image) for image in make_images()], labels_of())
    for name, names in (("a", ["x", "y", "z"]), ("b", ["y", "x", "z"])):
        metadata = {b"huggingface": json.dumps({"info": {"features": {"label": {"names": names}}}}).encode()}
        pq.write_table(table.replace_schema_metadata(metadata), tmp_path / f"{name}.parquet")
    with pytest.raises(SourceError, match="stores other class names"):
        fb.from_images(tmp_path / "*.parquet", label="label")


def test_class_names_need_labels(tmp_path):
    path, _ = write(tmp_path, "tar")
    with pytest.raises(SpecError, match="class_names= needs labels"):
        fb.from_images(path, class_names=["ant"])


def test_many_labels_are_read(tmp_path):
    rows = 200_000  # a check of all labels for each label would take an hour
    pq.write_table(
        pa.table({"image": [encode(make_images(rows=1)[0])] * rows, "label": range(rows)}), tmp_path / "a.parquet"
    )
    source = fb.from_images(tmp_path / "a.parquet", label="label").source
    assert source.gather_leaves([1], np.asarray([rows - 1]))[0].tolist() == [rows - 1]


@pytest.mark.parametrize("data", [struct.pack("<i", 200), "é".encode("latin-1"), b"", b" \n", b"x" * 2000])
def test_labels_that_are_no_text_are_refused(tmp_path, data):
    image = encode(make_images(rows=1)[0])
    with open_lmdb(tmp_path / "a.mdb") as environment, environment.begin(write=True) as transaction:
        transaction.put(b"image-1", image)
        transaction.put(b"label-1", data)
    tfrecord_files.write(
        tmp_path / "a.tfrecord",
        tfrecord_files.example(image=tfrecord_files.raw(image), label=tfrecord_files.raw(data)),
    )
    for name, column, label in (("a.mdb", "image-", "label-"), ("a.tfrecord", None, "label")):
        with pytest.raises(SourceError, match="which is not a short UTF-8 text"):
            fb.from_images(tmp_path / name, column=column, label=label)


def test_labels_of_all_files_are_numbers_or_class_names(tmp_path):
    images = [encode(image) for image in make_images(rows=4)]
    pq.write_table(pa.table({"image": images[:2], "label": ["1", "2"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"image": images[2:], "label": ["cat", "1"]}), tmp_path / "b.parquet")
    pipeline = fb.from_images(tmp_path / "*.parquet", label="label")
    assert pipeline.class_names == ("1", "2", "cat")
    assert next(iter(pipeline.batch(4).feed("numpy")))["label"].tolist() == [0, 1, 2, 0]


def test_labels_outside_the_stored_class_names_stay_numbers(tmp_path):
    table = make_table([encode(image) for image in make_images()], [-1] * ROWS)
    metadata = {b"huggingface": json.dumps({"info": {"features": {"label": {"names": ["x", "y"]}}}}).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    pipeline = fb.from_images(tmp_path / "a.parquet", label="label")
    assert pipeline.class_names == ()
    assert next(iter(pipeline.batch(2).feed("numpy")))["label"].tolist() == [-1, -1]


def test_members_without_a_folder_have_no_folder_label(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        data = encode(make_images(rows=1)[0])
        info = tarfile.TarInfo("1.png")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    with pytest.raises(SourceError, match=r"'1\.png' has no folder in its name"):
        fb.from_images(tmp_path / "a.tar", label="folder")


def test_damaged_numbers_of_a_label_raise_an_error_of_forebay(tmp_path):
    record = tfrecord_files.example(
        image=tfrecord_files.raw(encode(make_images(rows=1)[0])),
        label=tfrecord_files.field(3, tfrecord_files.field(1, b"\x80")),
    )
    tfrecord_files.write(tmp_path / "a.tfrecord", record)
    with pytest.raises(SourceError, match=r"record 0 of .* is not a tf\.train\.Example"):
        fb.from_images(tmp_path / "a.tfrecord", label="label")

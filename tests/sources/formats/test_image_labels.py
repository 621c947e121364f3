"""Labels of images from folders, manifests and functions."""

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import forebay as fb
from forebay.errors import ForebayError, SourceError, SpecError
from forebay.sources.formats.image_labels import find_file_labels, number_labels, parse_numbers

FILES = [Path("train/cat/1.jpg"), Path("train/dog/1.jpg"), Path("train/ant/1.jpg"), Path("train/cat/2.jpg")]


def label_files(paths, label, class_names):
    return number_labels(paths, find_file_labels(paths, label), class_names)


def test_folders_are_numbered_in_sorted_order():
    labelled = label_files(FILES, "folder", None)
    assert labelled.numbers.tolist() == [1, 2, 0, 1]
    assert labelled.numbers.dtype == np.int64
    assert labelled.class_names == ("ant", "cat", "dog")


def test_folders_of_the_same_name_are_one_class():
    labelled = label_files([Path("a/cat/1.jpg"), Path("b/cat/1.jpg"), Path("b/dog/1.jpg")], "folder", None)
    assert labelled.numbers.tolist() == [0, 0, 1]


def test_a_file_without_a_folder_has_the_class_of_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "fox").mkdir()
    monkeypatch.chdir(tmp_path / "fox")
    assert label_files([Path("1.jpg")], "folder", None).class_names == ("fox",)


def test_class_names_fix_the_order_and_select_classes():
    labelled = label_files(FILES, "folder", ["dog", "cat"])
    assert labelled.numbers.tolist() == [1, 0, 1]
    assert labelled.kept == [0, 1, 3]
    assert (labelled.class_names, labelled.left_out) == (("dog", "cat"), 1)


def test_a_class_name_without_a_file_is_refused_with_the_names_that_have_files():
    with pytest.raises(SourceError, match=r"the class 'cow' of class_names. The images belong to 'ant', 'cat', 'dog'"):
        label_files(FILES, "folder", ["cat", "cow"])


@pytest.mark.parametrize("class_names", ["cat", ["cat", "cat"]])
def test_class_names_that_are_no_list_of_different_names_are_refused(class_names):
    with pytest.raises(SpecError, match="is not a list of different names"):
        label_files(FILES, "folder", class_names)


def test_class_names_without_labels_are_refused(tmp_path):
    Image.new("RGB", (3, 2)).save(tmp_path / "1.png")
    with pytest.raises(SpecError, match="class_names= needs labels"):
        fb.from_images(tmp_path / "*.png", class_names=["cat"])


def test_without_a_label_all_files_remain(tmp_path):
    for number in range(4):
        Image.new("RGB", (3, 2)).save(tmp_path / f"{number}.png")
    source = fb.from_images(tmp_path / "*.png").source
    assert (len(source), source.structure.paths, source.class_names) == (4, ("image",), ())


@pytest.mark.parametrize("result", [7, np.int16(7)])
def test_a_function_may_return_numbers(result):
    assert label_files(FILES, lambda path: result, None).numbers.tolist() == [7] * 4


def test_a_function_may_return_class_names():
    labelled = label_files(FILES, lambda path: path.stem, None)
    assert (labelled.numbers.tolist(), labelled.class_names) == ([0, 0, 0, 1], ("1", "2"))


@pytest.mark.parametrize("result", [None, 1.5, b"cat"])
def test_a_function_that_returns_something_else_is_refused_with_the_file(result):
    with pytest.raises(SpecError, match=r"the label of train/cat/1.jpg is .*Return an integer or the name"):
        label_files(FILES, lambda path: result, None)


def test_numbers_and_class_names_together_are_refused():
    with pytest.raises(SpecError, match="is the number 3, but other labels are class names"):
        label_files(FILES, lambda path: 3 if path.stem == "2" else "cat", None)


def test_class_names_with_numbers_are_refused():
    with pytest.raises(SpecError, match="but the labels are numbers"):
        label_files(FILES, lambda path: 3, ["cat"])


def test_a_number_of_more_than_64_bits_is_refused():
    with pytest.raises(SpecError, match="exceeds 64 bits"):
        label_files(FILES, lambda path: 2**70, None)


@pytest.mark.parametrize("label", [3, ["folder"], "labels.txt", "folders"])
def test_an_unknown_value_of_label_is_refused(label):
    with pytest.raises(SpecError, match=r"label=.* is unknown. Pass 'folder'"):
        label_files(FILES, label, None)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_manifest_labels_files_relative_to_its_folder(tmp_path, suffix):
    manifest = write(tmp_path / f"labels.{suffix}", [("x/1.jpg", 5), ("./x/2.jpg", -3), ("not/used.jpg", 9)])
    assert label_files([tmp_path / "x" / "2.jpg", tmp_path / "x" / "1.jpg"], manifest, None).numbers.tolist() == [-3, 5]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_manifest_may_have_class_names(tmp_path, suffix):
    manifest = write(tmp_path / f"labels.{suffix}", [("1.jpg", "dog"), ("2.jpg", "7")])
    labelled = label_files([tmp_path / "1.jpg", tmp_path / "2.jpg"], str(manifest), None)
    assert (labelled.numbers.tolist(), labelled.class_names) == ([1, 0], ("7", "dog"))


@pytest.mark.parametrize("labels", [["0.5", "10.25"], ["1", "2.0"], ["1e3", "07"], [3, "0.5"]])
def test_numbers_with_fractions_are_refused_as_labels(labels):
    with pytest.raises(SpecError, match=r"is no integer, and all labels are numbers.*fb\.zip_rows\(images"):
        parse_numbers(labels)


@pytest.mark.parametrize("labels", [["07", "08"], ["0.5", "dog"], ["nan", "inf"], ["1.0.0", "2.0"]])
def test_labels_that_are_not_all_numbers_stay_class_names(labels):
    assert parse_numbers(labels) == labels


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_manifest_of_numbers_with_fractions_is_refused(tmp_path, suffix):
    manifest = write(tmp_path / f"labels.{suffix}", [("1.jpg", 0.5), ("2.jpg", 10.25)])
    with pytest.raises(ForebayError, match=r"0\.5.*class name"):
        label_files([tmp_path / "1.jpg", tmp_path / "2.jpg"], manifest, None)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_manifest_with_absolute_paths_is_read(tmp_path, suffix):
    manifest = write(tmp_path / f"labels.{suffix}", [(str(tmp_path / "1.jpg"), 4)])
    assert label_files([tmp_path / "1.jpg"], manifest, None).numbers.tolist() == [4]


def test_a_file_that_the_manifest_lacks_is_refused(tmp_path):
    manifest = write(tmp_path / "labels.csv", [("1.jpg", 4)])
    with pytest.raises(SourceError, match=r"2\.jpg is not in the column 'file' of .*labels\.csv"):
        label_files([tmp_path / "1.jpg", tmp_path / "2.jpg"], manifest, None)


def test_two_labels_of_a_file_are_refused(tmp_path):
    manifest = write(tmp_path / "labels.csv", [("1.jpg", 4), ("./1.jpg", 5)])
    with pytest.raises(SourceError, match=r"two labels for '\./1\.jpg': '4' and '5'"):
        label_files([tmp_path / "1.jpg"], manifest, None)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_manifest_without_the_columns_is_refused(tmp_path, suffix):
    manifest = write(tmp_path / f"labels.{suffix}", [("1.jpg", 4)], names=("path", "label"))
    with pytest.raises(SourceError, match=r"has no column 'file'. It has 'path', 'label'"):
        label_files([tmp_path / "1.jpg"], manifest, None)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00damaged", b"PAR1PAR1"])
def test_a_damaged_manifest_is_refused_with_its_name(tmp_path, suffix, content):
    (tmp_path / f"labels.{suffix}").write_bytes(content)
    with pytest.raises(SourceError, match=f"labels.{suffix}"):
        label_files([tmp_path / "1.jpg"], tmp_path / f"labels.{suffix}", None)


def test_a_line_without_a_label_is_refused(tmp_path):
    (tmp_path / "labels.csv").write_text("file,label\n1.jpg\n")
    with pytest.raises(SourceError, match=r"has the line '1\.jpg', None"):
        label_files([tmp_path / "1.jpg"], tmp_path / "labels.csv", None)


def test_a_missing_manifest_is_refused(tmp_path):
    with pytest.raises(SourceError, match=r"labels\.csv"):
        label_files([tmp_path / "1.jpg"], tmp_path / "labels.csv", None)


def write(path, lines, names=("file", "label")):
    if path.suffix == ".parquet":
        pq.write_table(pa.table(dict(zip(names, map(list, zip(*lines, strict=True)), strict=True))), path)
    else:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([names, *lines])
    return path


def test_labels_are_read_without_decoding_the_images(tmp_path):
    for number in range(4):
        path = tmp_path / ("ab"[number % 2]) / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(path)
    pipeline = fb.from_images(tmp_path / "*" / "*.png", label="folder")
    for path in tmp_path.glob("*/*.png"):
        path.write_bytes(b"damaged")
    first, second = pipeline.split(0.5, 0.5, by="label")
    assert (first.order.length, second.order.length) == (2, 2)
    with pytest.raises(SourceError):
        list(first.batch(2).feed("numpy"))

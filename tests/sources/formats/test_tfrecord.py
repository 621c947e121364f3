"""TFRecord files that TensorFlow wrote: Forebay indexes them once, and parses Examples without TensorFlow.

A separate process writes the files, because TensorFlow conflicts with other frameworks in one process.
"""

import functools
import subprocess
import sys

import numpy as np
import pytest
from tests.sources.formats.tfrecord_files import example, ints, write

import forebay as fb
from forebay.core.spec import ArraySpec
from forebay.errors import SourceError, SpecError
from forebay.sources.files.many_files import open_files
from forebay.sources.formats.tf_example import parse_example
from forebay.sources.formats.tfrecord import open_tfrecord, scan_records
from forebay.testing.sources import SourceTests, assert_rows

WRITER = """
import sys
import numpy as np, tensorflow as tf
folder = sys.argv[1]
F = tf.train.Feature
rng = np.random.default_rng(0)
x, image = rng.random((40, 3)).astype("f4"), rng.integers(0, 256, (40, 4, 2), dtype="u1")
label = (np.arange(40) - 3) ** 3
tokens = rng.integers(0, 100_000, (40, 5))
np.savez(f"{folder}/written.npz", x=x, image=image, label=label, tokens=tokens)
def example(row):
    return tf.train.Example(features=tf.train.Features(feature={
        "x": F(float_list=tf.train.FloatList(value=x[row])),
        "label": F(int64_list=tf.train.Int64List(value=[label[row]])),
        "tokens": F(int64_list=tf.train.Int64List(value=tokens[row])),
        "image": F(bytes_list=tf.train.BytesList(value=[image[row].tobytes()])),
    })).SerializeToString()
with tf.io.TFRecordWriter(f"{folder}/all.tfrecord") as writer:
    [writer.write(example(row)) for row in range(40)]
for part in range(4):
    with tf.io.TFRecordWriter(f"{folder}/part.tfrecord-{part:05d}-of-00004") as writer:
        [writer.write(example(row)) for row in range(part * 10, part * 10 + 10)]
with tf.io.TFRecordWriter(f"{folder}/compressed.tfrecord", "GZIP") as writer:
    [writer.write(example(row)) for row in range(40)]
"""
SPEC = {
    "image": ArraySpec((4, 2), "uint8"),
    "label": "int64",
    "tokens": ArraySpec((5,), "int64"),
    "x": ArraySpec((3,), "float32"),
}


@functools.cache
def write_with_tensorflow(folder):
    folder.mkdir(exist_ok=True)
    if not (folder / "compressed.tfrecord").exists():
        subprocess.run([sys.executable, "-c", WRITER, str(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture
def folder(tmp_path_factory):
    return write_with_tensorflow(tmp_path_factory.getbasetemp() / "tensorflow")


@pytest.fixture
def written(folder):
    return dict(np.load(folder / "written.npz"))


class TensorflowFileTests(SourceTests):
    """A source of files that TensorFlow wrote."""

    @pytest.fixture
    def made(self, folder, written):
        source, names = self.open(folder)
        yield source, {name: written[name] for name in names}
        source.close()


class TestExamples(TensorflowFileTests):
    def open(self, folder):
        return open_tfrecord(folder / "all.tfrecord", spec=SPEC), list(SPEC)


class TestCompressed(TensorflowFileTests):
    def open(self, folder):
        return open_tfrecord(folder / "compressed.tfrecord", spec=SPEC), list(SPEC)


class TestSelectedFeatures(TensorflowFileTests):
    def open(self, folder):
        return open_tfrecord(folder / "all.tfrecord", members=["x", "label"]), ["x", "label"]


class TestDecodedFeature(TensorflowFileTests):
    def open(self, folder):
        decode = {"image": lambda data: np.frombuffer(data, "u1").reshape(4, 2)}
        return open_tfrecord(folder / "all.tfrecord", decode=decode), ["image", "label", "tokens", "x"]


class TestDecodedRecord(TensorflowFileTests):
    def open(self, folder):
        def decode(record):
            return {"x": parse_example(record)["x"].numbers(record)}

        return open_tfrecord(folder / "all.tfrecord", decode=decode), ["x"]


class TestShards(TensorflowFileTests):
    def open(self, folder):
        return open_files(folder / "part.tfrecord-*", spec=SPEC, max_open_files=2), list(SPEC)


def test_a_compressed_file_larger_than_the_budget_is_refused_and_the_error_suggests_fixes(folder):
    with pytest.raises(SourceError, match=r"more than the limit of 1\.0 KiB.*max_held_bytes=.*gunzip"):
        open_tfrecord(folder / "compressed.tfrecord", max_held_nbytes=1024)


def test_a_truncated_compressed_file_is_refused(folder, tmp_path):
    (tmp_path / "x.tfrecord").write_bytes((folder / "compressed.tfrecord").read_bytes()[:500])
    with pytest.raises(SourceError, match=r"x\.tfrecord cannot be gunzipped"):
        open_tfrecord(tmp_path / "x.tfrecord")


def test_a_decoded_record_with_other_fields_is_refused_with_its_number(tmp_path):
    path = write(tmp_path / "x.tfrecord", example(x=ints(3)), example(x=ints(4)))
    names = iter(["x", "y"])
    source = open_tfrecord(path, decode=lambda record: {next(names): 1})
    with pytest.raises(SpecError, match=r"other fields for record 1 of .*expected .*'x'.*, got .*'y'"):
        source.gather(slice(1, 2), [np.empty(1, np.int64)])


def test_a_shuffled_epoch_has_every_record_once(folder, written):
    with fb.from_files(folder / "part.tfrecord-*", members=["label"]).shuffle(seed=1).batch(7).feed("numpy") as feed:
        labels = np.concatenate([batch["label"] for batch in feed])
    assert sorted(labels.tolist()) == sorted(written["label"].tolist())


def test_a_file_is_indexed_once(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "forebay.sources.formats.tfrecord.scan_records", lambda file: calls.append(file.path.name) or scan_records(file)
    )
    [write(tmp_path / f"{number}.tfrecord", example(x=ints(number))) for number in range(2)]
    source = open_files(tmp_path / "*.tfrecord", max_open_files=1)
    assert_rows(source, np.array([0, 1, 0, 1]), [np.arange(2)])
    assert sorted(calls) == ["0.tfrecord", "1.tfrecord"]


def test_without_the_checksum_library_the_error_names_the_extra(tmp_path):
    path = write(tmp_path / "x.tfrecord", example(x=ints(3)))
    script = f"import sys; sys.modules['google_crc32c'] = None\nimport forebay as fb\nfb.from_files({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "'forebay[tfrecord]'" in done.stderr

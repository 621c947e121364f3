"""TFRecord files: Forebay indexes them once, verifies checksums, and parses Examples without TensorFlow.

TensorFlow writes the files in its own process, because it conflicts with other frameworks in one process.
"""

import contextlib
import functools
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.core.spec import ArraySpec
from forebay.errors import ForebayError, SourceChangedError, SourceError, SpecError
from forebay.sources.files.many_files import open_files
from forebay.sources.formats.tf_example import parse_example, read_varints
from forebay.sources.formats.tfrecord import masked_crc, open_tfrecord, scan_records
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
def written_by_tensorflow(folder):
    folder.mkdir(exist_ok=True)
    if not (folder / "compressed.tfrecord").exists():
        subprocess.run([sys.executable, "-c", WRITER, str(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture
def folder(tmp_path_factory):
    return written_by_tensorflow(tmp_path_factory.getbasetemp() / "tensorflow")


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


def varint(number):
    number &= 2**64 - 1
    parts = [number >> shift & 127 for shift in range(0, 70, 7) if shift == 0 or number >> shift]
    return bytes([part | 128 for part in parts[:-1]] + parts[-1:])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(**features):
    return field(1, b"".join(field(1, field(1, name.encode()) + field(2, value)) for name, value in features.items()))


def floats(*values):
    return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))


def ints(*values):
    return field(3, field(1, b"".join(map(varint, values))))


def raw(*values):
    return field(1, b"".join(field(1, value) for value in values))


def write(path, *records):
    parts = [(struct.pack("<Q", len(record)), record) for record in records]
    crcs = [(struct.pack("<L", masked_crc(length)), struct.pack("<L", masked_crc(data))) for length, data in parts]
    path.write_bytes(b"".join(a + c + b + d for (a, b), (c, d) in zip(parts, crcs, strict=True)))
    return path


def test_a_single_number_is_a_scalar_unless_the_spec_has_a_shape(tmp_path):
    path = write(tmp_path / "x.tfrecord", example(x=ints(3)))
    assert open_tfrecord(path).specs == (ArraySpec((), "int64"),)
    assert open_tfrecord(path, spec={"x": ArraySpec((1,), "int64")}).specs == (ArraySpec((1,), "int64"),)


def test_unpacked_numbers_are_read(tmp_path):
    unpacked = field(2, b"".join(varint(1 << 3 | 5) + struct.pack("<f", value) for value in (1.0, 2.0)))
    whole = field(3, b"".join(varint(1 << 3) + varint(value) for value in (5, -300)))
    source = open_tfrecord(write(tmp_path / "x.tfrecord", example(x=unpacked, y=whole)))
    assert_rows(source, slice(0, 1), [np.array([[1.0, 2.0]], "f4"), np.array([[5, -300]])])


def test_the_order_of_features_in_a_record_does_not_matter(tmp_path):
    records = [
        example(a=ints(7), b=floats(1.0)),
        example(b=floats(2.0), a=ints(9)),
        example(a=ints(300), b=floats(3.0)),
    ]
    source = open_tfrecord(write(tmp_path / "x.tfrecord", *records * 5))
    expected = [np.array([7, 9, 300] * 5), np.array([1, 2, 3] * 5, "f4")]
    assert_rows(source, slice(0, 15), expected)
    assert_rows(source, slice(0, 15), expected)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_integers_of_any_size_are_decoded_from_varints(numbers):
    data = np.frombuffer(b"".join(map(varint, numbers)), np.uint8)
    assert read_varints(data).tolist() == numbers


@given(numbers=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40), part=st.integers(1, 30))
def test_varints_decoded_in_parts_are_equal(numbers, part):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("forebay.sources.formats.tf_example._PART_NBYTES", part)
        data = np.frombuffer(b"".join(map(varint, numbers)), np.uint8)
        assert read_varints(data).tolist() == numbers


@pytest.mark.parametrize("data", [b"\xff" * 2**21, b"\x01" * (2**20 - 5) + b"\xff" * 20 + b"\x01" * 2**20])
def test_a_long_list_with_a_number_of_more_than_64_bits_is_refused(data):
    with pytest.raises(ValueError, match=r"64 bits|no end"):
        read_varints(np.frombuffer(data, np.uint8))


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_raise_value_error(record):
    with contextlib.suppress(ValueError):
        parse_example(record)


def test_bytes_without_a_spec_are_refused_and_the_error_suggests_fixes(tmp_path):
    path = write(tmp_path / "x.tfrecord", example(image=raw(b"abc")))
    with pytest.raises(
        SpecError, match=r"'image' holds values of type bytes .*: 1.*spec=.*decode=\{'image': function\}.*members="
    ):
        open_tfrecord(path)


def test_a_missing_feature_is_refused_and_the_error_lists_the_features(tmp_path):
    path = write(tmp_path / "x.tfrecord", example(x=ints(3)))
    with pytest.raises(SourceError, match=r"no feature 'y'\. It has 'x'"):
        open_tfrecord(path, members=["y"])


def test_a_record_that_lacks_a_feature_is_named(tmp_path):
    source = open_tfrecord(write(tmp_path / "x.tfrecord", example(x=ints(3)), example(y=ints(3))))
    with pytest.raises(SourceError, match=r"record 1 of .* has no feature 'x'\. It has 'y'"):
        source.gather(slice(0, 2), [np.empty(2, "i8")])


def test_a_record_of_another_length_is_named(tmp_path):
    source = open_tfrecord(write(tmp_path / "x.tfrecord", example(x=ints(3, 4)), example(x=ints(3, 4, 5))))
    with pytest.raises(SourceError, match=r"record 1 of .* 'x' has int64\[3\] instead of int64\[2\]"):
        source.gather(slice(0, 2), [np.empty((2, 2), "i8")])


def test_a_record_of_another_kind_is_named(tmp_path):
    source = open_tfrecord(write(tmp_path / "x.tfrecord", example(x=ints(3)), example(x=floats(3))))
    with pytest.raises(SourceError, match=r"record 1 of .* 'x' has values of type float instead of int64"):
        source.gather(slice(0, 2), [np.empty(2, "i8")])


def test_bytes_whose_length_differs_from_the_spec_are_refused(tmp_path):
    path = write(tmp_path / "x.tfrecord", example(image=raw(b"abc")))
    source = open_tfrecord(path, spec={"image": ArraySpec((4,), "uint8")})
    with pytest.raises(SourceError, match=r"'image' has 3 bytes, but uint8\[4\] needs 4"):
        source.gather(slice(0, 1), [np.empty((1, 4), "u1")])


def test_a_record_that_is_not_an_example_is_refused_and_the_error_suggests_a_fix(tmp_path):
    with pytest.raises(SourceError, match=r"record 0 of .* is not a tf\.train\.Example: .*decode=function"):
        open_tfrecord(write(tmp_path / "x.tfrecord", b"\x0a\xff\xff\xff\xff"))


def test_a_decoded_record_with_another_shape_than_the_first_is_named(tmp_path):
    path = write(tmp_path / "x.tfrecord", b"ab", b"abc")
    source = open_tfrecord(path, decode=lambda record: np.frombuffer(record, "u1"))
    with pytest.raises(SpecError, match=r"uint8\[3\] for record 1 of .* but uint8\[2\] for the first"):
        source.gather(slice(0, 2), [np.empty((2, 2), "u1")])


def test_a_decoded_feature_of_another_shape_with_as_many_elements_is_refused(tmp_path):
    path = write(tmp_path / "x.tfrecord", *(example(image=raw(bytes(rows))) for rows in (2, 4)))
    decode = {"image": lambda data: np.zeros((len(data), 8 // len(data)))}
    source = open_tfrecord(path, decode=decode)
    with pytest.raises(SpecError, match=r"float64\[4, 2\] for record 1 of .*x\.tfrecord, but float64\[2, 4\]"):
        source.gather(slice(0, 2), [np.empty((2, 2, 4))])


@pytest.mark.parametrize("second", [ints(3), raw(b"a", b"b"), raw()])
def test_a_record_whose_feature_is_not_one_bytes_value_for_decode_is_named(tmp_path, second):
    path = write(tmp_path / "x.tfrecord", example(x=raw(b"a")), example(x=second))
    source = open_tfrecord(path, decode={"x": len})
    with pytest.raises(SourceError, match=r"record 1 of .*x\.tfrecord does not match"):
        source.gather(slice(0, 2), [np.empty(2, "i8")])


def test_an_error_in_a_decode_function_keeps_its_type(tmp_path):
    source = open_tfrecord(
        write(tmp_path / "x.tfrecord", example(x=raw(b"1")), example(x=raw(b"a"))), decode={"x": int}
    )
    with pytest.raises(ValueError, match="invalid literal") as raised:
        source.gather(slice(0, 2), [np.empty(2, "i8")])
    assert not isinstance(raised.value, ForebayError)


@pytest.mark.parametrize(
    "numbers", [field(2, field(1, b"abc")), field(3, field(1, b"\xff")), field(3, field(1, b"\xff" * 11))]
)
def test_the_error_for_damaged_numbers_names_the_record(tmp_path, numbers):
    with pytest.raises(SourceError, match=r"record 0 of .*x\.tfrecord is not a tf\.train\.Example"):
        open_tfrecord(write(tmp_path / "x.tfrecord", example(x=numbers)))


def test_empty_values_are_read(tmp_path):
    path = write(tmp_path / "x.tfrecord", *(example(x=raw(b""), y=floats(), z=ints(row)) for row in range(3)))
    spec = {"x": ArraySpec((0,), "float32"), "y": ArraySpec((0,), "float32"), "z": "int64"}
    source = open_tfrecord(path, spec=spec)
    expected = [np.empty((3, 0), "f4"), np.empty((3, 0), "f4"), np.arange(3)]
    assert_rows(source, slice(0, 3), expected)
    assert_rows(source, slice(0, 3), expected)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**40])
def test_a_length_beyond_the_file_with_a_valid_checksum_is_refused(tmp_path, length):
    path = write(tmp_path / "x.tfrecord", example(x=ints(3)))
    head = struct.pack("<Q", length)
    path.write_bytes(path.read_bytes() + head + struct.pack("<L", masked_crc(head)) + bytes(20))
    with pytest.raises(SourceError, match="truncated in record 1"):
        open_tfrecord(path)


def test_lengths_are_verified_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("forebay.sources.formats.tfrecord._VERIFIED_RECORDS", 3)
    path = write(tmp_path / "x.tfrecord", *(example(x=ints(row)) for row in range(10)))
    assert_rows(open_tfrecord(path), slice(0, 10), [np.arange(10)])
    data = bytearray(path.read_bytes())
    data[len(data) // 10 * 7] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceError, match="the length of record 7 is wrong"):
        open_tfrecord(path)


def test_a_wrong_checksum_of_a_record_raises_an_error(tmp_path):
    path = write(tmp_path / "x.tfrecord", example(x=ints(3)), example(x=ints(4)))
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    source = open_tfrecord(path)
    with pytest.raises(SourceError, match="checksum of record 1 is wrong"):
        source.gather(slice(0, 2), [np.empty(2, "i8")])


def test_a_wrong_length_raises_an_error_on_open(tmp_path):
    path = write(tmp_path / "x.tfrecord", example(x=ints(3)), example(x=ints(4)))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceError, match="the length of record 1 is wrong"):
        open_tfrecord(path)


@pytest.mark.parametrize("kept", [1, 5, 14])
def test_a_truncated_file_is_refused(tmp_path, kept):
    path = write(tmp_path / "x.tfrecord", example(x=ints(3)), example(x=ints(4)))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 + kept])
    with pytest.raises(SourceError, match=r"truncated in record 1"):
        open_tfrecord(path)


def test_a_file_that_shrinks_while_open_raises_an_error(tmp_path):
    path = write(tmp_path / "x.tfrecord", example(x=ints(3)), example(x=ints(4)))
    source = open_tfrecord(path)
    path.write_bytes(b"")
    with pytest.raises(SourceChangedError, match="has 0 now"):
        source.gather(slice(0, 1), [np.empty(1, "i8")])


def test_a_compressed_file_beyond_the_budget_is_refused_and_the_error_suggests_fixes(folder):
    with pytest.raises(SourceError, match=r"more than the limit of 1\.0 KiB.*max_held_bytes=.*gunzip"):
        open_tfrecord(folder / "compressed.tfrecord", max_held_nbytes=1024)


def test_a_truncated_compressed_file_is_refused(folder, tmp_path):
    (tmp_path / "x.tfrecord").write_bytes((folder / "compressed.tfrecord").read_bytes()[:500])
    with pytest.raises(SourceError, match=r"x\.tfrecord cannot be gunzipped"):
        open_tfrecord(tmp_path / "x.tfrecord")


def test_a_file_that_is_not_tfrecord_is_refused(tmp_path):
    (tmp_path / "x.tfrecord").write_bytes(b"not at all, whatever its name says")
    with pytest.raises(SourceError, match="is not a TFRecord file"):
        open_tfrecord(tmp_path / "x.tfrecord")


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "x.tfrecord").touch()
    with pytest.raises(ForebayError, match="has no records"):
        open_tfrecord(tmp_path / "x.tfrecord")


def test_a_file_is_indexed_once(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "forebay.sources.formats.tfrecord.scan_records", lambda file: calls.append(file.path.name) or scan_records(file)
    )
    [write(tmp_path / f"{number}.tfrecord", example(x=ints(number))) for number in range(2)]
    source = open_files(tmp_path / "*.tfrecord", max_open_files=1)
    assert_rows(source, np.array([0, 1, 0, 1]), [np.arange(2)])
    assert sorted(calls) == ["0.tfrecord", "1.tfrecord"]


def test_a_shuffled_epoch_has_every_record_once(folder, written):
    with fb.from_files(folder / "part.tfrecord-*", members=["label"]).shuffle(seed=1).batch(7).feed("numpy") as feed:
        labels = np.concatenate([batch["label"] for batch in feed])
    assert sorted(labels.tolist()) == sorted(written["label"].tolist())


def test_without_the_checksum_library_the_error_names_the_extra(tmp_path):
    path = write(tmp_path / "x.tfrecord", example(x=ints(3)))
    script = f"import sys; sys.modules['google_crc32c'] = None\nimport forebay as fb\nfb.from_files({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "'forebay[tfrecord]'" in done.stderr

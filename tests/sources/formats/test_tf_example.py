"""Examples in TFRecord files: their numbers, their specs, and errors that name the record."""

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.formats.tfrecord_files import example, field, floats, ints, raw, varint, write

from forebay.core.spec import ArraySpec
from forebay.errors import ForebayError, SourceError, SpecError
from forebay.sources.formats.tf_example import parse_example, read_varints
from forebay.sources.formats.tfrecord import open_tfrecord
from forebay.testing.sources import assert_rows

# Values


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


def test_empty_values_are_read(tmp_path):
    path = write(tmp_path / "x.tfrecord", *(example(x=raw(b""), y=floats(), z=ints(row)) for row in range(3)))
    spec = {"x": ArraySpec((0,), "float32"), "y": ArraySpec((0,), "float32"), "z": "int64"}
    source = open_tfrecord(path, spec=spec)
    expected = [np.empty((3, 0), "f4"), np.empty((3, 0), "f4"), np.arange(3)]
    assert_rows(source, slice(0, 3), expected)
    assert_rows(source, slice(0, 3), expected)


# Errors


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


def test_the_error_names_a_record_that_lacks_a_feature(tmp_path):
    source = open_tfrecord(write(tmp_path / "x.tfrecord", example(x=ints(3)), example(y=ints(3))))
    with pytest.raises(SourceError, match=r"record 1 of .* has no feature 'x'\. It has 'y'"):
        source.gather(slice(0, 2), [np.empty(2, "i8")])


def test_the_error_names_a_record_of_another_length(tmp_path):
    source = open_tfrecord(write(tmp_path / "x.tfrecord", example(x=ints(3, 4)), example(x=ints(3, 4, 5))))
    with pytest.raises(SourceError, match=r"record 1 of .* 'x' has int64\[3\] instead of int64\[2\]"):
        source.gather(slice(0, 2), [np.empty((2, 2), "i8")])


def test_the_error_names_a_record_of_another_kind(tmp_path):
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


def test_the_error_names_a_decoded_record_with_another_shape_than_the_first(tmp_path):
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
def test_the_error_names_a_record_whose_feature_is_not_one_bytes_value_for_decode(tmp_path, second):
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

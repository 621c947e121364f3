"""Decompression with a limit gives the same bytes as without one, or raises an error."""

import bz2
import gzip
import lzma
import zlib

import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.sources.formats.inflate_limit import declared_nbytes, decompress_limited, find_decompressor

COMPRESS = {"gzip": gzip.compress, "zlib": zlib.compress, "bz2": bz2.compress, "lzma": lzma.compress}
CODECS = st.sampled_from(list(COMPRESS))


@given(data=st.binary(), codec=CODECS)
def test_data_within_the_limit_is_decompressed(data, codec):
    assert decompress_limited(find_decompressor(codec, {}), COMPRESS[codec](data), len(data)) == data


@given(data=st.binary(min_size=1), codec=CODECS)
def test_data_above_the_limit_raises_an_error(data, codec):
    with pytest.raises(ValueError, match=f"decompresses to more than {len(data) - 1} bytes"):
        decompress_limited(find_decompressor(codec, {}), COMPRESS[codec](data), len(data) - 1)


@given(data=st.binary(), codec=CODECS)
def test_truncated_data_raises_an_error(data, codec):
    with pytest.raises(ValueError, match="its data ends early"):
        decompress_limited(find_decompressor(codec, {}), COMPRESS[codec](data)[:-1], len(data))


@given(parts=st.lists(st.binary(), min_size=1, max_size=3), codec=st.sampled_from(["gzip", "bz2", "lzma"]))
def test_streams_that_follow_each_other_are_joined(parts, codec):
    compressed, data = b"".join(map(COMPRESS[codec], parts)), b"".join(parts)
    assert decompress_limited(find_decompressor(codec, {}), compressed, len(data)) == data


class CountingDecompressor:
    """A decompressor of gzip data that counts the bytes that it gets."""

    received_nbytes = 0

    def __init__(self):
        self._inner = find_decompressor("gzip", {})()

    def decompress(self, data, max_length):
        CountingDecompressor.received_nbytes += len(data)
        return self._inner.decompress(data, max_length)

    @property
    def unused_data(self):
        return self._inner.unused_data

    @property
    def eof(self):
        return self._inner.eof


def test_a_decompressor_of_a_short_stream_does_not_get_all_data_after_it(monkeypatch):
    monkeypatch.setattr(CountingDecompressor, "received_nbytes", 0)
    data = gzip.compress(b"a") * 10_000
    assert decompress_limited(CountingDecompressor, data, 10_000) == b"a" * 10_000
    assert CountingDecompressor.received_nbytes < 10_000 * 4096 + len(data)


@given(size=st.integers(0, 40_000), padding=st.integers(0, 10_000), codec=st.sampled_from(["gzip", "bz2", "lzma"]))
def test_long_streams_with_padding_between_them_are_joined(size, padding, codec):
    first, second = b"abc", np.random.default_rng(0).bytes(size)
    compressed = COMPRESS[codec](first) + bytes(padding) + COMPRESS[codec](second) + bytes(padding)
    assert decompress_limited(find_decompressor(codec, {}), compressed, size + 3) == first + second


def test_other_bytes_after_a_stream_are_ignored():
    assert decompress_limited(find_decompressor("zlib", {}), zlib.compress(b"abc") + b"other", 3) == b"abc"


def test_an_lzma_dictionary_above_the_limit_raises_an_error():
    config = {"format": lzma.FORMAT_RAW, "filters": [{"id": lzma.FILTER_LZMA2, "dict_size": 2**30}]}
    with pytest.raises(ValueError, match="its dictionary is larger than 536870912 bytes"):
        decompress_limited(find_decompressor("lzma", config), b"data", 10)


@given(data=st.binary(min_size=1), codec=st.sampled_from(["zstd", "lz4", "blosc"]))
def test_the_declared_size_is_the_size_of_the_data(data, codec):
    assert declared_nbytes(codec, numcodecs.get_codec({"id": codec}).encode(data)) == len(data)


def test_zstd_frames_and_skippable_frames_add_up():
    frame = bytes(numcodecs.get_codec({"id": "zstd", "checksum": True}).encode(b"abc" * 1000))
    assert declared_nbytes("zstd", frame + b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip" + frame) == 6000


@given(data=st.binary(max_size=100))
def test_any_bytes_declare_a_size_or_raise_value_error(data):
    problem = ""
    try:
        assert declared_nbytes("zstd", b"\x28\xb5\x2f\xfd" + data) >= 0
    except ValueError as error:
        problem = str(error)
    assert not problem or "its data ends early" in problem or "not Zstandard" in problem

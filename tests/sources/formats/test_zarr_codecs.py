"""The codecs of Zarr stores.

Forebay refuses a chunk that decompresses to many more bytes than its shape needs. It uses a codec that is not known to
be safe only if the user names this codec.
"""

import json
import os
import pickle
import zlib

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numcodecs.registry import register_codec
from tests.support.zarr_stores import claim_version_2, claim_version_3, read_first

import forebay as fb
from forebay.errors import SourceError
from forebay.sources.formats.zarr import open_zarr
from forebay.testing.sources import assert_rows

ROWS = np.arange(60, dtype="f4").reshape(20, 3)
INTEGERS = ROWS.astype("i4")
COMPRESSORS = [{"id": name} for name in ("blosc", "gzip", "zlib", "zstd", "lz4", "bz2", "lzma")]
COMPRESSORS += [
    {"id": "blosc", "cname": "zstd", "shuffle": 2},
    {"id": "zstd", "checksum": True},
    {"id": "lzma", "format": 3, "filters": [{"id": 33, "preset": 1}]},
]
FILTERS = [
    {"id": "shuffle", "elementsize": 4},
    {"id": "delta", "dtype": "<f4"},
    {"id": "delta", "dtype": "<f4", "astype": "<f8"},
    {"id": "fixedscaleoffset", "offset": 0, "scale": 1, "dtype": "<f4", "astype": "<i8"},
    {"id": "bitround", "keepbits": 23},
    {"id": "quantize", "digits": 3, "dtype": "<f4"},
    {"id": "astype", "encode_dtype": "<f8", "decode_dtype": "<f4"},
    {"id": "base64"},
    *({"id": name} for name in ("crc32", "adler32", "fletcher32", "jenkins_lookup3", "crc32c")),
]


class Payload:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class Reversed(numcodecs.abc.Codec):
    """A codec that numcodecs does not have."""

    codec_id = "reversed"

    def encode(self, buf):
        return bytes(buf)[::-1]

    def decode(self, buf, out=None):
        return bytes(buf)[::-1]


register_codec(Reversed)


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
def test_a_store_of_version_2_with_a_standard_compressor_is_read(tmp_path, compressor):
    write_version_2(tmp_path / "x.zarr", ROWS, compressor=compressor)
    assert_rows(open_zarr(tmp_path / "x.zarr"), slice(0, 20), [ROWS])


@pytest.mark.parametrize("compressor", [None, {"id": "zlib"}], ids=str)
@pytest.mark.parametrize("codec", FILTERS, ids=str)
def test_a_store_of_version_2_with_a_standard_filter_is_read(tmp_path, codec, compressor):
    write_version_2(tmp_path / "x.zarr", ROWS, filters=[codec], compressor=compressor)
    assert_rows(open_zarr(tmp_path / "x.zarr"), slice(0, 20), [ROWS])


def test_packed_bits_are_read(tmp_path):
    write_version_2(tmp_path / "x.zarr", ROWS % 2 == 0, filters=[{"id": "packbits"}])
    assert_rows(open_zarr(tmp_path / "x.zarr"), slice(0, 20), [ROWS % 2 == 0])


def test_a_store_of_version_2_in_fortran_order_is_read(tmp_path):
    zarr.create_array(
        str(tmp_path / "x.zarr"), data=ROWS, chunks=(8, 2), zarr_format=2, order="F", compressors=numcodecs.Zlib()
    )
    assert_rows(open_zarr(tmp_path / "x.zarr"), slice(0, 20), [ROWS])


@pytest.mark.parametrize(
    "name", ["blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd", "crc32", "adler32", "fletcher32", "shuffle"]
)
@pytest.mark.filterwarnings("ignore:Numcodecs codecs")
def test_a_store_of_version_3_with_a_codec_of_numcodecs_is_read(tmp_path, name):
    codec = {"name": f"numcodecs.{name}", "configuration": {}}
    zarr.create_array(str(tmp_path / "x.zarr"), data=ROWS, chunks=(8, 3), compressors=[codec])
    assert_rows(open_zarr(tmp_path / "x.zarr"), slice(0, 20), [ROWS])


@pytest.mark.parametrize(
    "codec", [zarr.codecs.GzipCodec(), zarr.codecs.ZstdCodec(), zarr.codecs.BloscCodec(), zarr.codecs.Crc32cCodec()]
)
def test_a_store_of_version_3_with_a_standard_codec_is_read(tmp_path, codec):
    zarr.create_array(str(tmp_path / "x.zarr"), data=ROWS, chunks=(8, 2), compressors=[codec])
    assert_rows(open_zarr(tmp_path / "x.zarr"), slice(0, 20), [ROWS])


def test_shards_with_compressed_chunks_and_a_transposed_layout_are_read(tmp_path):
    zarr.create_array(
        str(tmp_path / "x.zarr"),
        data=ROWS,
        chunks=(2, 3),
        shards=(8, 3),
        filters=[zarr.codecs.TransposeCodec(order=(1, 0))],
        compressors=[zarr.codecs.GzipCodec(), zarr.codecs.ZstdCodec()],
    )
    assert_rows(open_zarr(tmp_path / "x.zarr"), slice(0, 20), [ROWS])


@pytest.mark.parametrize("dtype", ["<f4", [["a", "<f4"]], "|V4", "|S4", "<M8[ns]"], ids=str)
@pytest.mark.parametrize("place", ["compressor", "filters"])
def test_a_pickle_in_a_store_of_version_2_is_refused_as_dangerous(tmp_path, monkeypatch, dtype, place):
    # Old versions of numcodecs load every pickle. New versions do so if this flag is set.
    monkeypatch.setattr("numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    codec = {"id": "pickle", "protocol": 5}
    folder = claim_version_2(tmp_path, dtype=dtype, **{place: codec if place == "compressor" else [codec]})
    (folder / "0").write_bytes(pickle.dumps(Payload(tmp_path / "trapped")))
    with pytest.raises(SourceError, match=r"uses the codec 'pickle', which is dangerous.*codecs=\['pickle'\]"):
        read_first(folder)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("name", ["pickle", "numcodecs.pickle", "my.cloudpickle", "dill"])
def test_a_pickle_in_a_store_of_version_3_is_refused_as_dangerous(tmp_path, name):
    with pytest.raises(SourceError, match=f"uses the codec '{name}', which is dangerous"):
        read_first(claim_version_3(tmp_path, codecs=[{"name": "bytes"}, {"name": name}]))


def test_a_pickle_in_consolidated_metadata_is_refused_as_dangerous(tmp_path):
    claim_version_2(tmp_path, compressor={"id": "pickle"}).rename(tmp_path / "x")
    folder = tmp_path / "x.zarr"
    folder.mkdir()
    (folder / ".zgroup").write_text('{"zarr_format": 2}')
    metadata = {".zgroup": {"zarr_format": 2}, "x/.zarray": json.loads((tmp_path / "x/.zarray").read_text())}
    (folder / ".zmetadata").write_text(json.dumps({"zarr_consolidated_format": 1, "metadata": metadata}))
    with pytest.raises(SourceError, match="uses the codec 'pickle', which is dangerous"):
        read_first(folder)


def test_an_unknown_codec_is_refused_unless_the_user_names_it(tmp_path):
    write_version_2(tmp_path / "x.zarr", INTEGERS, compressor={"id": "reversed"})
    with pytest.raises(SourceError, match=r"uses the codec 'reversed', which is not known.*codecs=\['reversed'\]"):
        open_zarr(tmp_path / "x.zarr")
    feed = fb.from_files(tmp_path / "x.zarr", codecs=["reversed"]).batch(20).feed("numpy")
    np.testing.assert_array_equal(next(iter(feed)), INTEGERS)


def test_an_array_with_an_unknown_codec_does_not_affect_other_arrays(tmp_path):
    zarr.create_group(str(tmp_path / "x.zarr"), zarr_format=2)
    write_version_2(tmp_path / "x.zarr/bad", ROWS, compressor={"id": "reversed"})
    write_version_2(tmp_path / "x.zarr/good", ROWS)
    assert_rows(open_zarr(tmp_path / "x.zarr", members=["good"]), slice(0, 20), [ROWS])


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["gzip", "zlib", "bz2", "lzma", "zstd", "lz4", "blosc"])
def test_a_chunk_that_decompresses_to_more_bytes_than_its_shape_needs_is_refused(tmp_path, codec):
    folder = claim_version_2(tmp_path, compressor={"id": codec})
    (folder / "0").write_bytes(numcodecs.get_codec({"id": codec}).encode(bytes(2**26)))
    with pytest.raises(SourceError, match=r"rows 0 to 3, cannot be decompressed: .*(bytes|too small)"):
        read_first(folder)


@pytest.mark.parametrize("codec", ["gzip", "zstd", "blosc"])
def test_a_chunk_of_version_3_that_decompresses_to_more_bytes_than_its_shape_needs_is_refused(tmp_path, codec):
    folder = claim_version_3(tmp_path, codecs=[{"name": "bytes"}, VERSION_3_CODECS[codec]])
    (folder / "c/0").write_bytes(numcodecs.get_codec({"id": codec}).encode(bytes(2**26)))
    with pytest.raises(SourceError, match=r"rows 0 to 3, cannot be decompressed: .*(bytes|too small)"):
        read_first(folder)


def test_a_gzip_chunk_of_two_members_is_read(tmp_path):
    folder = claim_version_2(tmp_path, compressor={"id": "gzip"})
    half = ROWS[:1, :2].tobytes()
    compress = zlib.compressobj(wbits=31)
    member = compress.compress(half) + compress.flush()
    (folder / "0").write_bytes(member + member)
    assert_rows(open_zarr(folder), slice(0, 4), [np.frombuffer(half + half, "<f4")])


def test_a_zstd_frame_without_its_size_is_read(tmp_path):
    folder = claim_version_2(tmp_path, dtype="|u1", shape=[2**18], chunks=[2**18], compressor={"id": "zstd"})
    (folder / "0").write_bytes(zstd_zeros(2))
    assert_rows(open_zarr(folder), slice(0, 2**18), [np.zeros(2**18, "u1")])


def test_a_zstd_frame_without_its_size_is_refused_if_it_is_too_long(tmp_path):
    folder = claim_version_2(tmp_path, compressor={"id": "zstd"})
    (folder / "0").write_bytes(zstd_zeros(2**16))  # 8 GiB
    with pytest.raises(SourceError, match="cannot be decompressed"):
        read_first(folder)


def test_a_filter_with_huge_values_is_refused(tmp_path):
    codec = {"id": "astype", "encode_dtype": "<f4", "decode_dtype": "|S1000000000"}
    with pytest.raises(SourceError, match="a filter makes values of 1000000000 bytes"):
        read_first(claim_version_2(tmp_path, filters=[codec]))


@given(content=st.binary(max_size=64), codec=st.sampled_from(["zstd", "gzip", "blosc", "lz4", "lzma", "bz2", "zlib"]))
def test_any_bytes_in_a_chunk_raise_a_source_error(tmp_path_factory, content, codec):
    folder = claim_version_2(tmp_path_factory.mktemp("x"), compressor={"id": codec})
    (folder / "0").write_bytes(content)
    with pytest.raises(SourceError):
        read_first(folder)


VERSION_3_CODECS = {
    "gzip": {"name": "gzip", "configuration": {"level": 1}},
    "zstd": {"name": "zstd", "configuration": {"level": 1, "checksum": False}},
    "blosc": {
        "name": "blosc",
        "configuration": {"typesize": 4, "cname": "lz4", "clevel": 5, "shuffle": "noshuffle", "blocksize": 0},
    },
}


def write_version_2(path, rows, *, filters=None, compressor=None):
    filters = filters and [numcodecs.get_codec(codec) for codec in filters]
    compressor = compressor and numcodecs.get_codec(compressor)
    zarr.create_array(
        str(path), data=rows, chunks=(8, *rows.shape[1:]), zarr_format=2, filters=filters, compressors=compressor
    )


def zstd_zeros(blocks):
    """Return a Zstandard frame without its size: blocks of 128 KiB zeros."""
    headers = [(2**17 << 3 | 1 << 1 | (number == blocks - 1)).to_bytes(3, "little") for number in range(blocks)]
    return b"\x28\xb5\x2f\xfd\x00\x38" + b"".join(header + b"\0" for header in headers)

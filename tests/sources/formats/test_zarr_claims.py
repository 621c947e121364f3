"""Sizes that the metadata of a Zarr store claims are checked before memory is allocated."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.zarr_stores import claim_version_2, claim_version_3, read_first

from forebay.errors import BudgetError, ForebayError, SourceError
from forebay.sources.formats.zarr import open_zarr
from forebay.testing.sources import assert_rows

SHARD_INDEX = {"codecs": [{"name": "bytes"}], "index_codecs": [{"name": "bytes"}, {"name": "crc32c"}]}


def test_more_chunks_than_the_budget_can_record_are_refused_with_their_number(tmp_path):
    folder = claim_version_3(tmp_path, shape=[200_000_000], chunk_shape=[1])
    with pytest.raises(BudgetError, match=r"x\.zarr claims 200000000 chunks.*pass max_held_bytes=12800000000"):
        open_zarr(folder)


def test_more_chunks_in_one_row_than_the_budget_can_record_are_refused(tmp_path):
    folder = claim_version_3(tmp_path, shape=[2, 10**9], chunk_shape=[1, 1])
    with pytest.raises(BudgetError, match="claims 1000000000 chunks"):
        open_zarr(folder)


def test_more_chunks_in_one_shard_than_the_budget_can_record_are_refused(tmp_path):
    sharding = {"name": "sharding_indexed", "configuration": {"chunk_shape": [1], **SHARD_INDEX}}
    folder = claim_version_3(tmp_path, shape=[10**9], chunk_shape=[10**9], codecs=[sharding])
    with pytest.raises(BudgetError, match="claims 1000000000 chunks"):
        open_zarr(folder)


def test_a_larger_budget_allows_more_chunks(tmp_path):
    folder = claim_version_3(tmp_path, shape=[100_000], chunk_shape=[1])
    with pytest.raises(BudgetError, match="pass max_held_bytes=6400000 or more"):
        open_zarr(folder, max_held_nbytes=2**20)
    assert_rows(open_zarr(folder, max_held_nbytes=6_400_000), slice(0, 4), [np.zeros(4, "f4")])


def test_a_chunk_larger_than_the_memory_is_refused(tmp_path):
    folder = claim_version_3(tmp_path, shape=[4], chunk_shape=[2**50])
    with pytest.raises(BudgetError, match=rf"claims chunks of shape \({2**50},\)\. This needs {2**52} bytes"):
        open_zarr(folder)


def test_chunks_larger_than_the_budget_of_the_user_are_refused(tmp_path):
    folder = claim_version_3(tmp_path, shape=[2**28], chunk_shape=[2**23])
    with pytest.raises(BudgetError, match=r"needs 134217728 bytes of memory, more than the limit of 64.0 MiB"):
        open_zarr(folder, max_held_nbytes=2**20)
    assert len(open_zarr(folder, max_held_nbytes=2**27)) == 2**28


def test_the_chunks_of_all_arrays_count_together(tmp_path):
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "x.zarr/zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    for name in "abc":
        claim_version_3(tmp_path / name, shape=[2**28], chunk_shape=[2**22]).rename(tmp_path / "x.zarr" / name)
    assert len(open_zarr(tmp_path / "x.zarr", members=["a"], max_held_nbytes=2**20)) == 2**28
    with pytest.raises(BudgetError, match=r"'b' in .*needs 134217728 bytes"):
        open_zarr(tmp_path / "x.zarr", max_held_nbytes=2**20)


@pytest.mark.parametrize("shape", [[2**63], [2**61, 2], [-4], [1] * 80], ids=str)
def test_an_impossible_shape_is_refused(tmp_path, shape):
    with pytest.raises(SourceError, match=r"is damaged|cannot be read as Zarr"):
        read_first(claim_version_3(tmp_path, shape=shape, chunk_shape=[4] * len(shape)))


@pytest.mark.parametrize("chunk_shape", [[0], [-1], [4, 4], ["4"]], ids=str)
def test_an_impossible_chunk_shape_is_refused(tmp_path, chunk_shape):
    with pytest.raises(SourceError, match=r"is damaged|cannot be read as Zarr"):
        read_first(claim_version_3(tmp_path, chunk_shape=chunk_shape))


@pytest.mark.parametrize("dtype", ["|V2000000000", "|S2000000000", [["a", "<f4", [1000, 1000, 100]]]], ids=str)
def test_a_huge_dtype_of_version_2_is_refused(tmp_path, dtype):
    with pytest.raises(SourceError, match=r"claims values of [0-9]+ bytes"):
        read_first(claim_version_2(tmp_path, dtype=dtype, fill_value=0))


@pytest.mark.parametrize(
    "dtype", ["r16000000000", {"name": "null_terminated_bytes", "configuration": {"length_bytes": 2 * 10**9}}], ids=str
)
def test_a_huge_dtype_of_version_3_is_refused(tmp_path, dtype):
    with pytest.raises(SourceError, match=r"claims values of [0-9]+ bytes"):
        read_first(claim_version_3(tmp_path, data_type=dtype, fill_value=""))


def test_a_named_pipe_in_place_of_a_chunk_is_refused(tmp_path):
    folder = claim_version_3(tmp_path)
    os.mkfifo(folder / "c/0")
    with pytest.raises(SourceError, match=r"c/0 is not a regular file"):
        read_first(folder)


def test_a_named_pipe_in_place_of_metadata_is_refused(tmp_path):
    (tmp_path / "x.zarr").mkdir()
    os.mkfifo(tmp_path / "x.zarr/zarr.json")
    with pytest.raises(SourceError, match=r"zarr\.json is not a regular file"):
        open_zarr(tmp_path / "x.zarr")


def test_a_link_out_of_the_store_is_refused_unless_the_user_asks_for_it(tmp_path):
    folder = claim_version_3(tmp_path)
    (tmp_path / "secret").write_bytes(np.arange(4, dtype="f4").tobytes())
    (folder / "c/0").symlink_to(tmp_path / "secret")
    with pytest.raises(SourceError, match=r"c/0 is behind a symbolic link.*external_files='read'"):
        read_first(folder)
    assert_rows(open_zarr(folder, external_files="read"), slice(0, 4), [np.arange(4, dtype="f4")])


def test_links_inside_the_store_and_to_the_store_are_followed(tmp_path):
    folder = claim_version_3(tmp_path)
    (folder / "data").write_bytes(np.arange(4, dtype="f4").tobytes())
    (folder / "c/0").symlink_to("../data")
    (tmp_path / "link.zarr").symlink_to(folder)
    assert_rows(open_zarr(tmp_path / "link.zarr"), slice(0, 4), [np.arange(4, dtype="f4")])


def test_a_chunk_file_larger_than_the_memory_is_refused_with_its_size(tmp_path):
    folder = claim_version_3(tmp_path)
    (folder / "c/0").touch()
    os.truncate(folder / "c/0", 2**40)  # a sparse file, which takes no space on the disk
    with pytest.raises(SourceError, match=rf"c/0 has {2**40} bytes, more than the limit of 64\.0 MiB"):
        read_first(folder, max_held_nbytes=2**20)


def test_metadata_larger_than_the_limit_is_refused_with_its_size(tmp_path):
    folder = claim_version_3(tmp_path)
    os.truncate(folder / "zarr.json", 2**40)
    with pytest.raises(SourceError, match=rf"zarr\.json has {2**40} bytes"):
        open_zarr(folder)


@pytest.mark.parametrize(("claim", "name"), [(claim_version_3, "zarr.json"), (claim_version_2, ".zattrs")])
def test_metadata_with_more_values_than_the_budget_allows_is_refused_with_their_number(tmp_path, claim, name):
    folder = claim(tmp_path)
    (folder / name).write_text(f'{{"a": [{",".join(["[]"] * 400_000)}]}}')
    message = rf"{name} has up to 800001 values, which need 102400128 bytes .* limit of 64\.0 MiB.*max_held_bytes="
    with pytest.raises(SourceError, match=message):
        open_zarr(folder, max_held_nbytes=2**20)


LENGTHS = st.sampled_from([-1, 0, 1, 4, 2**31, 2**40, 2**62, 2**63, 2**64, True, 1.5, "4", None])


@given(
    shape=st.lists(LENGTHS, max_size=3),
    chunks=st.lists(LENGTHS, max_size=3),
    dtype=st.sampled_from(["<f4", "|V0", "|O", "<U0", "|S9999999999", "<M8[s]", [], [["a", "<f4"]], None, 3]),
    fill_value=st.sampled_from([0, None, "NaN", "Infinity", -(2**70), 1e400, "AAAA", [], {}]),
)
def test_any_claim_is_refused_with_an_error_of_forebay_or_read(tmp_path_factory, shape, chunks, dtype, fill_value):
    folder = claim_version_2(
        tmp_path_factory.mktemp("x"), shape=shape, chunks=chunks, dtype=dtype, fill_value=fill_value
    )
    try:
        source = open_zarr(folder, max_held_nbytes=2**20)
    except ForebayError:
        return
    assert all(spec.nbytes <= 2**26 for spec in source.specs)


LIMITED = """
import resource, sys
from forebay.errors import ForebayError
from tests.support.zarr_stores import read_first
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 512 * 2**20,) * 2)
for path in sys.argv[1:]:
    try:
        read_first(path, max_held_nbytes=2**26)
    except ForebayError:
        print("refused")
"""


@pytest.mark.slow
def test_a_process_with_little_memory_refuses_absurd_claims(tmp_path):
    """The process may reserve 512 MiB more, because the threads of zarr reserve address space."""
    claims = [
        {"shape": [10**9], "chunk_shape": [1]},
        {"shape": [4], "chunk_shape": [10**9]},
        {"shape": [4, 10**9], "chunk_shape": [1, 10**9]},
        {"data_type": "r8000000000"},
    ]
    folders = [str(claim_version_3(tmp_path / str(number), **claim)) for number, claim in enumerate(claims)]
    done = subprocess.run([sys.executable, "-c", LIMITED, *folders], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["refused"] * len(claims)

"""HDF5 files that name other files, claim absurd sizes or contain a decompression bomb."""

import os
import random
import zlib

import h5py
import hdf5plugin
import numpy as np
import pytest

import forebay as fb
from forebay.errors import BudgetError, SourceError
from forebay.sources.formats import hdf5_filters
from forebay.sources.formats.hdf5 import open_hdf5
from forebay.sources.formats.hdf5_filters import FilterLimits
from forebay.testing.sources import assert_rows

ROWS = np.arange(32, dtype="u1")


def test_thousands_of_nested_groups_are_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        group = file
        for _ in range(3000):
            group = group.create_group("g")
    with pytest.raises(SourceError, match=r"x\.h5 has groups that are nested more than 100 levels deep"):
        open_hdf5(tmp_path / "x.h5")


def test_external_raw_data_is_refused_with_the_name_of_the_other_file(tmp_path):
    with pytest.raises(SourceError, match=r"'x' in .* is stored in another file, .*secret'.*external_files='read'"):
        open_hdf5(write_external(tmp_path))


def test_external_raw_data_is_read_if_the_user_asks_for_it(tmp_path):
    feed = fb.from_files(write_external(tmp_path), external_files="read").batch(32).feed("numpy")
    np.testing.assert_array_equal(next(iter(feed))["x"], ROWS)


def test_a_virtual_dataset_is_refused(tmp_path):
    with pytest.raises(SourceError, match=r"'x' in .* is a virtual dataset.*external_files='read'"):
        open_hdf5(write_virtual(tmp_path))


def test_a_virtual_dataset_does_not_open_its_files_before_it_is_refused(tmp_path):
    path = write_virtual(tmp_path)
    (tmp_path / "other.h5").unlink()
    os.mkfifo(tmp_path / "other.h5")  # opening this pipe would block
    with pytest.raises(SourceError, match="is a virtual dataset"):
        open_hdf5(path)


def test_a_dataset_in_other_files_does_not_affect_other_datasets(tmp_path):
    path = write_external(tmp_path)
    with h5py.File(path, "a") as file:
        file["y"] = ROWS
    assert_rows(open_hdf5(path, members=["y"]), slice(0, 32), [ROWS])


@pytest.mark.parametrize("group", ["link", "/link", "soft", "inner/soft"])
def test_a_group_behind_an_external_link_is_refused(tmp_path, group):
    with pytest.raises(SourceError, match=r"'link' in .* is a link to another file, .*external_files='read'"):
        open_hdf5(write_linked(tmp_path), group=group)


@pytest.mark.parametrize("group", ["link", "inner/soft"])
def test_a_group_behind_an_external_link_is_read_from_its_file_if_the_user_asks_for_it(tmp_path, group):
    source = open_hdf5(write_linked(tmp_path), group=group, external_files="read")
    assert_rows(source, slice(0, 32), [ROWS])


def test_an_external_link_to_a_pipe_is_not_opened(tmp_path):
    path = write_linked(tmp_path)
    (tmp_path / "other.h5").unlink()
    os.mkfifo(tmp_path / "other.h5")
    with pytest.raises(SourceError, match="is a link to another file"):
        open_hdf5(path, group="link")


def test_a_group_behind_a_soft_link_in_the_same_file_is_read(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["train/x"] = ROWS
        file["latest"] = h5py.SoftLink("/train")
    assert_rows(open_hdf5(tmp_path / "x.h5", group="latest"), slice(0, 32), [ROWS])


def test_a_cycle_of_links_is_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"], file["b"] = h5py.SoftLink("/b"), h5py.SoftLink("/a")
    with pytest.raises(SourceError, match="is a cycle of links"):
        open_hdf5(tmp_path / "x.h5", group="a")


def test_an_unknown_value_of_external_files_is_refused(tmp_path):
    with pytest.raises(SourceError, match=r"external_files=True is unknown\. Choose 'refuse' or 'read'"):
        open_hdf5(write_external(tmp_path), external_files=True)


def test_more_chunks_than_the_budget_has_memory_to_index_are_refused_with_their_number(tmp_path):
    path = claim(tmp_path, (200_000_000,), chunks=(1,), compression="gzip")
    with pytest.raises(BudgetError, match=r"'x' in .* claims 200000000 chunks.*max_held_bytes=12800000000"):
        open_hdf5(path)


def test_more_chunks_in_one_row_than_the_budget_has_memory_to_index_are_refused(tmp_path):
    path = claim(tmp_path, (2, 10**9), chunks=(1, 1), compression="gzip")
    with pytest.raises(BudgetError, match="claims 1000000000 chunks"):
        open_hdf5(path)


@pytest.mark.parametrize("options", [{}, {"chunks": (1, 2**20)}, {"chunks": (1, 2**20), "compression": "lzf"}], ids=str)
def test_rows_larger_than_the_memory_are_refused(tmp_path, options):
    with pytest.raises(BudgetError, match=rf"needs ({2**40}|{2**42}) bytes of memory"):
        open_hdf5(claim(tmp_path, (4, 2**40), **options))


def test_chunks_larger_than_the_budget_of_the_user_are_refused(tmp_path):
    path = claim(tmp_path, (2**30,), chunks=(2**25,), compression="gzip")
    with pytest.raises(BudgetError, match=rf"needs {2**27} bytes of memory, more than the limit of 64.0 MiB"):
        open_hdf5(path, max_held_nbytes=2**20)  # a smaller budget than 64 MiB counts as 64 MiB
    assert len(open_hdf5(path, max_held_nbytes=2**27)) == 2**30


def test_an_impossible_shape_is_refused(tmp_path):
    with pytest.raises(SourceError, match="is damaged: it claims to hold uint8 of shape"):
        open_hdf5(claim(tmp_path, (2**62, 2), chunks=(1, 1)))


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip"},
        {"compression": "gzip", "shuffle": True},
        {"compression": "gzip", "fletcher32": True},
        dict(hdf5plugin.Zstd()),
        dict(hdf5plugin.Blosc(cname="zstd")),
        {"compression": "lzf"},
        {"compression": "lzf", "shuffle": True, "fletcher32": True},
        {"compression": "szip"},
        dict(hdf5plugin.BZip2()),
        dict(hdf5plugin.LZ4()),
        dict(hdf5plugin.Bitshuffle()),
        dict(hdf5plugin.Bitshuffle(cname="zstd")),
    ],
    ids=str,
)
def test_a_chunk_that_decompresses_to_more_than_its_size_is_refused(tmp_path, options):
    path = write_bomb(tmp_path, options)
    source = open_hdf5(path, max_held_nbytes=2**20)
    with pytest.raises(SourceError, match=r"cannot be decompressed: .*(decompresses to|more than) \d+ bytes"):
        source.gather(slice(0, 4), [np.empty(4, "u1")])


def test_a_chunk_whose_writer_skipped_a_filter_is_checked_too(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        options = {"shuffle": True, "compression": "gzip", "fletcher32": True}
        dataset = file.create_dataset("x", (4,), "u1", maxshape=(None,), chunks=(2**16,), **options)
        dataset.id.write_direct_chunk((0,), zlib.compress(bytes(2**28)), 0b101)  # without shuffle and checksum
    source = open_hdf5(tmp_path / "x.h5", max_held_nbytes=2**20)
    with pytest.raises(SourceError, match=r"cannot be decompressed: .*more than \d+ bytes"):
        source.gather(slice(0, 4), [np.empty(4, "u1")])


def test_a_bomb_that_is_compressed_twice_is_refused(tmp_path):
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((2**16,))
    properties.set_deflate(9)
    properties.set_deflate(9)
    properties.set_fletcher32()
    with h5py.File(tmp_path / "x.h5", "w") as file:
        space = h5py.h5s.create_simple((4,), (h5py.h5s.UNLIMITED,))
        dataset = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_UINT8, space, properties)
        chunk = zlib.compress(zlib.compress(bytes(2**28)))
        dataset.write_direct_chunk((0,), chunk, 0b100)
    source = open_hdf5(tmp_path / "x.h5", max_held_nbytes=2**20)
    with pytest.raises(SourceError, match=r"cannot be decompressed: .*more than \d+ bytes"):
        source.gather(slice(0, 4), [np.empty(4, "u1")])


@pytest.mark.parametrize(
    "options",
    [
        {"fletcher32": True},
        {"compression": "gzip", "fletcher32": True},
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
        {"compression": "gzip", "scaleoffset": True},
        {"compression": "lzf", "shuffle": True, "fletcher32": True},
        {"compression": "szip"},
        {"scaleoffset": True},
        dict(hdf5plugin.Blosc()),
        dict(hdf5plugin.BZip2()),
        dict(hdf5plugin.LZ4()),
        dict(hdf5plugin.Bitshuffle()),
        dict(hdf5plugin.Bitshuffle(cname="zstd")),
        dict(hdf5plugin.Bitshuffle(cname="none")),
    ],
    ids=str,
)
def test_large_chunks_with_several_filters_are_read(tmp_path, options):
    rows = np.random.default_rng(0).integers(0, 200, 2**18)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=rows, chunks=(2**17,), **options)
    assert_rows(open_hdf5(tmp_path / "x.h5", max_held_nbytes=2**20), slice(0, 2**18), [rows])


def test_parameters_of_a_filter_that_claim_a_larger_chunk_are_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=np.arange(1000), chunks=(1000,), scaleoffset=True)
    content = (tmp_path / "x.h5").read_bytes()
    parameter = np.uint32(1000).tobytes()  # the number of values in a chunk, after two other parameters
    position = content.index(b"scaleoffset") + content[content.index(b"scaleoffset") :].index(parameter)
    (tmp_path / "x.h5").write_bytes(content[:position] + np.uint32(2**31).tobytes() + content[position + 4 :])
    source = open_hdf5(tmp_path / "x.h5")
    with pytest.raises(SourceError, match=r"decompresses to 17179869184 bytes, and the limit is 81536"):
        source.gather(slice(0, 4), [np.empty(4, int)])


def test_a_filter_without_a_limit_is_refused_unless_the_user_trusts_it(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=ROWS, **hdf5plugin.Blosc2())
    with pytest.raises(SourceError, match=r"'x' in .*x\.h5 uses the HDF5 filter 32026, .* pass filters=\[32026\]"):
        open_hdf5(tmp_path / "x.h5")
    feed = fb.from_files(tmp_path / "x.h5", filters=[32026]).batch(32).feed("numpy")
    np.testing.assert_array_equal(next(iter(feed))["x"], ROWS)


def test_the_size_of_a_chunk_is_checked_once(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=np.zeros((32, 100)), chunks=(8, 100), compression="lzf")
        limits = FilterLimits(dataset, 0)
        sizes, count = [], hdf5_filters._lzf_nbytes
        monkeypatch.setattr(hdf5_filters, "_lzf_nbytes", lambda data: sizes.append(count(data)) or sizes[-1])
        for first_row in (0, 8, 0, 8):
            limits.validate(first_row)
    assert sizes == [6400, 6400]


@pytest.mark.parametrize("filters", [32026, None, "blosc2", ["blosc2"]], ids=str)
def test_filters_that_are_not_numbers_are_refused(tmp_path, filters):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=ROWS)
    with pytest.raises(SourceError, match=r"^filters=.* is not a list of numbers"):
        open_hdf5(tmp_path / "x.h5", filters=filters)


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"compression": "gzip", "shuffle": True}], ids=str)
def test_a_flipped_bit_in_a_chunk_with_a_checksum_is_detected(tmp_path, options):
    rows, path = np.arange(240, dtype="f4").reshape(40, 6), tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", data=rows, chunks=(8, 6), fletcher32=True, **options)
        infos = [dataset.id.get_chunk_info(number) for number in range(5)]
    content, rng = path.read_bytes(), random.Random(1)
    for info in infos:
        damaged = bytearray(content)
        damaged[info.byte_offset + rng.randrange(info.size)] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        source = open_hdf5(path)
        with pytest.raises(SourceError, match="cannot be decompressed"):
            source.gather(slice(0, 40), [np.empty((40, 6), "f4")])


def write_external(folder):
    (folder / "secret").write_bytes(ROWS.tobytes())
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", ROWS.shape, "u1", external=[(folder / "secret", 0, 32)])
    return folder / "x.h5"


def write_other(folder):
    with h5py.File(folder / "other.h5", "w") as file:
        file["x"] = ROWS


def write_virtual(folder):
    write_other(folder)
    layout = h5py.VirtualLayout((32,), "u1", maxshape=(None,))
    source = h5py.VirtualSource(folder / "other.h5", "x", (32,), maxshape=(None,))
    layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
    with h5py.File(folder / "x.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout)
    return folder / "x.h5"


def write_linked(folder):
    write_other(folder)
    with h5py.File(folder / "x.h5", "w") as file:
        file["filler"] = np.zeros(500)  # so that offsets differ between the files
        file["link"] = h5py.ExternalLink(folder / "other.h5", "/")
        file["soft"] = h5py.SoftLink("/link")
        file["inner/soft"] = h5py.SoftLink("/soft")
    return folder / "x.h5"


def claim(folder, shape, **options):
    """Write a file with a dataset of any shape and without data."""
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", shape, "u1", **options)
    return folder / "x.h5"


def write_bomb(folder, options):
    """Write a dataset of 4 bytes, whose chunk of 64 KiB decompresses to 256 MiB."""
    with h5py.File(folder / "big.h5", "w") as file:
        big = file.create_dataset("x", data=np.zeros(2**28, "u1"), chunks=(2**28,), **options)
        filter_mask, chunk = big.id.read_direct_chunk((0,))
    with h5py.File(folder / "x.h5", "w") as file:
        small = file.create_dataset("x", (4,), "u1", maxshape=(None,), chunks=(2**16,), **options)
        small.id.write_direct_chunk((0,), chunk, filter_mask)
    return folder / "x.h5"

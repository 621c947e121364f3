"""Many files as one source, whose rows are numbered across all files."""

import os
import threading

import numpy as np
import pytest
from PIL import Image

from forebay.core.spec import ArraySpec
from forebay.errors import SourceChangedError, SourceError, SpecError
from forebay.sources.files.many_files import open_files
from forebay.sources.files.open_pool import SourcePool
from forebay.sources.files.paths import expand_paths
from forebay.sources.formats.npy import open_npy
from forebay.testing.sources import SourceTests, assert_rows

LENGTHS = (7, 0, 12, 1, 5, 0)


def parts(*shape, dtype="f4"):
    rng = np.random.default_rng(0)
    return [rng.integers(0, 255, (length, *shape)).astype(dtype) for length in LENGTHS]


class TestNpyFiles(SourceTests):
    def make_source(self, tmp_path):
        arrays = save_parts(tmp_path, parts(3))
        return open_files(tmp_path / "*.npy"), np.concatenate(arrays)


class TestMoreFilesThanMaxOpenFiles(SourceTests):
    def make_source(self, tmp_path):
        arrays = save_parts(tmp_path, parts(3))
        return open_files(str(tmp_path / "*.npy"), max_open_files=1), np.concatenate(arrays)


class TestLargeRows(SourceTests):
    def make_source(self, tmp_path):
        arrays = save_parts(tmp_path, parts(100, 100))
        return open_files(tmp_path / "*.npy", max_open_files=2), np.concatenate(arrays)


class TestNpzFiles(SourceTests):
    def make_source(self, tmp_path):
        arrays = parts(3)
        for number, array in enumerate(arrays):
            np.savez_compressed(tmp_path / f"{number}.npz", x=array, y=array[:, 0])
        whole = np.concatenate(arrays)
        return open_files(tmp_path / "*.npz", max_held_bytes="1KB"), {"x": whole, "y": whole[:, 0]}


class TestCsvFiles(SourceTests):
    def make_source(self, tmp_path):
        arrays = parts(3, dtype="f8")
        for number, array in enumerate(arrays):
            np.savetxt(tmp_path / f"{number}.csv", array, delimiter=",", header="a,b,c", comments="")
        return open_files(tmp_path / "*.csv", max_open_files=2), np.concatenate(arrays)


class TestBinaryFiles(SourceTests):
    def make_source(self, tmp_path):
        arrays = parts(3)
        for number, array in enumerate(arrays):
            array.tofile(tmp_path / f"{number}.bin")
        return open_files(tmp_path / "*.bin", spec=ArraySpec((3,), "float32")), np.concatenate(arrays)


class TestFilesOfTwoFormats(SourceTests):
    def make_source(self, tmp_path):
        array, image = np.zeros((5, 4, 4, 3), "u1"), np.ones((4, 4, 3), "u1")
        np.save(tmp_path / "a.npy", array)
        Image.fromarray(image).save(tmp_path / "b.png")
        return open_files([tmp_path / "a.npy", tmp_path / "b.png"]), np.concatenate([array, image[None]])


def test_a_single_file_opens_as_the_source_of_its_format(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    assert type(open_files(tmp_path / "x.npy")) is type(open_npy(tmp_path / "x.npy"))


def test_a_glob_is_sorted_in_natural_order(tmp_path):
    names = ["part-10.npy", "part-2.npy", "part-1.npy", "part.npy"]
    [(tmp_path / name).touch() for name in names]
    names_in_order = [path.name for path in expand_paths(tmp_path / "*.npy")]
    assert names_in_order == ["part-1.npy", "part-2.npy", "part-10.npy", "part.npy"]


def test_a_list_keeps_its_order_and_expands_globs_in_place(tmp_path):
    [(tmp_path / name).touch() for name in ["a1.npy", "a2.npy", "b.npy"]]
    names_in_order = [path.name for path in expand_paths([tmp_path / "b.npy", str(tmp_path / "a*.npy")])]
    assert names_in_order == ["b.npy", "a1.npy", "a2.npy"]


def test_a_name_with_brackets_is_a_file_if_it_exists(tmp_path):
    (tmp_path / "x[1].npy").touch()
    assert expand_paths(tmp_path / "x[1].npy") == [tmp_path / "x[1].npy"]


def test_two_stars_match_subfolders(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "x.npy").touch()
    assert [path.name for path in expand_paths(tmp_path / "**" / "*.npy")] == ["x.npy"]


def test_a_link_to_a_folder_that_contains_the_link_is_refused(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "x.npy").touch()
    (tmp_path / "other").symlink_to("deep")  # no loop
    assert len(expand_paths(tmp_path / "**" / "*.npy")) == 2
    (tmp_path / "deep" / "er" / "again").symlink_to("../..")
    with pytest.raises(SourceError, match=r"follows the link '.*again' to a folder that contains this link"):
        expand_paths(tmp_path / "**" / "*.npy")


def test_a_glob_that_matches_nothing_is_refused(tmp_path):
    with pytest.raises(SourceError, match=r"nothing\.npy' matches nothing"):
        open_files(tmp_path / "*nothing.npy")


def test_a_glob_that_matches_only_folders_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(SourceError, match="only directories"):
        open_files(tmp_path / "*")


def test_a_folder_is_refused_with_a_glob_to_use(tmp_path):
    with pytest.raises(SourceError, match=r"is a directory\. Pass a glob.*\*\.npy"):
        open_files(tmp_path)


def test_the_error_names_a_missing_file(tmp_path):
    with pytest.raises(SourceError, match=r"gone\.npy'"):
        open_files([tmp_path / "gone.npy"])


def test_an_empty_list_of_files_is_refused():
    with pytest.raises(SourceError, match="no files were given"):
        open_files([])


def test_an_unknown_suffix_is_refused_with_the_known_suffixes(tmp_path):
    (tmp_path / "x.xlsx").touch()
    with pytest.raises(SourceError, match=r"cannot read '\.xlsx' files.*\.npy"):
        open_files(tmp_path / "x.xlsx")


def test_an_option_of_another_format_is_refused_and_the_error_lists_the_options(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    with pytest.raises(SourceError, match=r"\.npy files have no option 'delimiter'. Choose from these options: spec"):
        open_files(tmp_path / "x.npy", delimiter=",")


def test_token_ids_in_a_file_of_raw_bytes_need_the_option_spec(tmp_path):
    np.zeros(3, np.uint16).tofile(tmp_path / "x.bin")
    with pytest.raises(SourceError, match=r"no option 'dtype'.*For numbers such as token IDs, write spec='uint16'\."):
        open_files(tmp_path / "x.bin", dtype="uint16")
    with pytest.raises(SpecError, match="for example spec='uint16' for token IDs"):
        open_files(tmp_path / "x.bin")
    assert len(open_files(tmp_path / "x.bin", spec="uint16")) == 3


def test_files_of_different_dtype_are_refused_with_both_names(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3), "f4"))
    np.save(tmp_path / "b.npy", np.zeros((2, 3), "f8"))
    with pytest.raises(SpecError, match=r"a\.npy has array float32\[3\] and .*b\.npy has array float64\[3\]"):
        open_files(tmp_path / "*.npy")


def test_files_of_different_structure_are_refused_with_both_names(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(2))
    np.savez(tmp_path / "b.npz", x=np.zeros(2))
    with pytest.raises(SpecError, match=r"a\.npy has array float64\[\] and .*b\.npz has x float64\[\]"):
        open_files(tmp_path / "*")


def test_max_open_files_of_zero_is_refused(tmp_path):
    save_parts(tmp_path, parts())
    with pytest.raises(SourceError, match="max_open_files=0"):
        open_files(tmp_path / "*.npy", max_open_files=0)


def test_memory_lists_every_region_if_all_files_stay_open(tmp_path):
    save_parts(tmp_path, parts(3))
    regions = open_files(tmp_path / "*.npy").memory()
    assert [region.nbytes for region in regions] == [length * 12 for length in LENGTHS]


def test_files_without_rows_have_no_extents_and_all_other_files_have_one(tmp_path):
    save_parts(tmp_path, parts(3))
    source = open_files(tmp_path / "*.npy")
    (memory,), (file,) = source.memory_extents(), source.file_extents()
    assert [(each.first, each.rows) for each in memory] == [(0, 7), (7, 12), (19, 1), (20, 5)]
    assert [(each.first, each.rows) for each in file] == [(0, 7), (7, 12), (19, 1), (20, 5)]


def test_memory_is_empty_if_files_are_closed_and_reopened(tmp_path):
    save_parts(tmp_path, parts(3))
    assert open_files(tmp_path / "*.npy", max_open_files=2).memory() == []


def test_a_file_deleted_before_it_is_reopened_raises_an_error(tmp_path):
    save_parts(tmp_path, parts(3))
    source = open_files(tmp_path / "*.npy", max_open_files=1)
    (tmp_path / "0.npy").unlink()
    with pytest.raises(SourceChangedError, match=r"0\.npy was readable when it was opened, but not now"):
        source.gather(slice(0, 3), [np.empty((3, 3), "f4")])


def test_a_file_replaced_before_it_is_reopened_raises_an_error(tmp_path):
    save_parts(tmp_path, parts(3))
    source = open_files(tmp_path / "*.npy", max_open_files=1)
    np.save(tmp_path / "0.npy", np.zeros((8, 3), "f4"))
    with pytest.raises(SourceChangedError, match=r"0\.npy was replaced.*had 7 rows.*has 8"):
        source.gather(slice(0, 3), [np.empty((3, 3), "f4")])


def test_a_file_that_shrinks_while_open_raises_an_error(tmp_path):
    save_parts(tmp_path, parts(3))
    source = open_files(tmp_path / "*.npy")
    os.truncate(tmp_path / "2.npy", 130)
    with pytest.raises(SourceChangedError, match=r"2\.npy shrank"):
        source.gather(np.array([0, 8]), [np.empty((2, 3), "f4")])


def test_opening_reads_no_data(tmp_path):
    """Open sparse files of 4 GiB. Reading them would take seconds and memory."""
    for name in "ab":
        header = np.lib.format.open_memmap(tmp_path / f"{name}.npy", "w+", "u1", (2**32,))
        header.flush()
    source = open_files(tmp_path / "*.npy")
    assert_rows(source, np.array([2**33 - 1]), [np.broadcast_to(np.uint8(0), 2**33)])


def test_closed_files_raise_an_error(tmp_path):
    save_parts(tmp_path, parts())
    source = open_files(tmp_path / "*.npy")
    source.close()
    with pytest.raises(SourceError, match="are closed"):
        source.gather(slice(0, 3), [np.empty(3, "f4")])


def test_a_source_in_use_is_not_closed():
    opened = [Recorded(), Recorded()]
    pool = SourcePool([lambda: opened[0], lambda: opened[1]], max_open=1, max_held_nbytes=1)
    with pool.use(0), pool.use(1):
        assert [source.closed for source in opened] == [False, False]
    assert pool.open_count == 1


def test_the_least_recently_used_source_is_closed_first():
    opened = [Recorded(), Recorded(), Recorded()]
    pool = SourcePool([lambda n=n: opened[n] for n in range(3)], max_open=2, max_held_nbytes=1)
    for number in (0, 1, 0, 2):
        with pool.use(number):
            pass
    assert [source.closed for source in opened] == [False, True, False]


def test_sources_are_closed_when_they_hold_more_than_the_budget():
    opened = [Recorded(60), Recorded(60)]
    pool = SourcePool([lambda: opened[0], lambda: opened[1]], max_open=9, max_held_nbytes=100)
    for number in (0, 1):
        with pool.use(number):
            pass
    assert [source.closed for source in opened] == [True, False]


def test_threads_that_use_one_source_open_it_once():
    opened = []
    barrier = threading.Barrier(4, timeout=60)
    pool = SourcePool([lambda: opened.append(Recorded()) or opened[-1]], max_open=1, max_held_nbytes=1)

    def use():
        barrier.wait()
        with pool.use(0):
            barrier.wait()

    threads = [threading.Thread(target=use) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(opened) == 1


class Recorded:
    """A source that only records whether it was closed."""

    def __init__(self, held_nbytes=0):
        self.held_nbytes, self.closed = held_nbytes, False

    def close(self):
        self.closed = True


def save_parts(folder, arrays):
    for number, array in enumerate(arrays):
        np.save(folder / f"{number}.npy", array)
    return arrays

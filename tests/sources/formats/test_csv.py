"""Text tables: Forebay indexes lines, parses them on demand and names bad lines in errors."""

import os

import numpy as np
import pytest

from forebay.core.spec import ArraySpec
from forebay.errors import SourceChangedError, SourceError, SpecError
from forebay.sources.files.mapped import MappedFile
from forebay.sources.formats import csv_lines, csv_table
from forebay.sources.formats.csv import open_csv, open_txt
from forebay.sources.formats.csv_lines import scan_lines
from forebay.testing.sources import SourceTests, assert_rows


def numbers():
    return np.random.default_rng(0).normal(size=(101, 4))


class TestCsv(SourceTests):
    def make_source(self, tmp_path):
        np.savetxt(tmp_path / "x.csv", numbers(), delimiter=",")
        return open_csv(tmp_path / "x.csv"), numbers()


class TestTooLargeToCache(SourceTests):
    @pytest.fixture(autouse=True)
    def disable_the_cache(self, monkeypatch):
        monkeypatch.setattr(csv_table, "_MAX_CACHED_NBYTES", -1)
        monkeypatch.setattr(csv_table, "_ROWS_PER_PARSE", 10)

    def make_source(self, tmp_path):
        np.savetxt(tmp_path / "x.csv", numbers(), delimiter=",", header="a,b,c,d")
        return open_csv(tmp_path / "x.csv"), numbers()


class TestTxt(SourceTests):
    def make_source(self, tmp_path):
        np.savetxt(tmp_path / "x.txt", numbers())
        return open_txt(tmp_path / "x.txt"), numbers()


class TestSparseIndex(SourceTests):
    """A table with more lines than the index stores, scanned in several pieces."""

    @pytest.fixture(autouse=True)
    def limit_the_index(self, monkeypatch):
        monkeypatch.setattr(csv_lines, "_FIRST_STEP", 1)
        monkeypatch.setattr(csv_lines, "_MAX_OFFSETS", 7)
        monkeypatch.setattr(csv_lines, "_SCAN_NBYTES", 100)

    def make_source(self, tmp_path):
        np.savetxt(tmp_path / "x.csv", numbers(), delimiter=",")
        return open_csv(tmp_path / "x.csv"), numbers()


class TestColumnsSplitByPosition(SourceTests):
    def make_source(self, tmp_path):
        write(tmp_path, "".join(f"{i},{i / 4},{-i},{2**62 + i}\n" for i in range(40)))
        spec = {"a": "uint8", "pair": ArraySpec((2,), "float32"), "id": "int64"}
        count = np.arange(40)
        pair = np.stack([count / 4, -count], 1).astype("f4")
        return open_csv(tmp_path / "x.csv", spec=spec), {"a": count.astype("u1"), "pair": pair, "id": 2**62 + count}


class TestColumnsByName(SourceTests):
    def make_source(self, tmp_path):
        write(tmp_path, "a,label,b\n" + "".join(f"{i},{i * 2},{i * 3}\n" for i in range(40)))
        spec = {"x": ArraySpec((2,), "float64"), "label": "int32"}
        count = np.arange(40)
        x = np.stack([count, count * 3], 1).astype("f8")
        return open_csv(tmp_path / "x.csv", spec=spec), {"x": x, "label": (count * 2).astype("i4")}


class TestWindowsLineEndings(SourceTests):
    def make_source(self, tmp_path):
        write(tmp_path, "\ufeffa;b\r\n" + "\r\n".join(f"{i};{i / 2}" for i in range(40)) + "\r\n\r\n  \r\n")
        return open_csv(tmp_path / "x.csv", delimiter=";"), np.stack([np.arange(40), np.arange(40) / 2], 1)


class TestHeaderWithoutRows(SourceTests):
    def make_source(self, tmp_path):
        write(tmp_path, "a,b,c\n")
        return open_csv(tmp_path / "x.csv"), np.zeros((0, 3))


def test_a_last_line_without_a_line_ending_is_a_row(tmp_path):
    assert len(open_csv(write(tmp_path, "1,2\n3,4"))) == 2


def test_columns_that_the_spec_does_not_name_are_left_out(tmp_path):
    source = open_csv(write(tmp_path, "a,b,c\n1,2,3\n4,5,6\n"), spec={"c": "int64", "a": "int64"})
    assert_rows(source, slice(0, 2), [np.array([3, 6]), np.array([1, 4])])


def test_quoted_names_in_a_header_are_unquoted(tmp_path):
    source = open_csv(write(tmp_path, '"a","b, c"\n1,2\n'), spec={"b, c": "int64"})
    assert_rows(source, slice(0, 1), [np.array([2])])


def test_a_first_line_with_a_number_is_data(tmp_path):
    assert len(open_csv(write(tmp_path, "1,x\n2,3\n"))) == 2


def test_a_first_line_of_complex_numbers_is_data(tmp_path):
    source = open_csv(write(tmp_path, "(1+2j),3j\n5,6\n"), spec=ArraySpec((2,), "complex128"))
    assert_rows(source, slice(0, 2), [np.array([[1 + 2j, 3j], [5, 6]])])


@pytest.mark.parametrize("other", ["datetime64[D]", "U10"])
def test_a_first_line_with_a_date_is_data(tmp_path, other):
    spec = {"day": "datetime64[D]", "other": other}
    rows = "2020-01-01,2021-01-01\n2022-01-01,2023-01-01\n"
    assert len(open_csv(write(tmp_path, rows), spec=spec)) == 2
    assert len(open_csv(write(tmp_path, "day,other\n" + rows), spec=spec)) == 2


def test_a_column_named_j_is_not_a_complex_number(tmp_path):
    assert len(open_csv(write(tmp_path, "i,j\n1,2j\n"), spec=ArraySpec((2,), "complex128"))) == 1


def test_a_first_line_without_values_is_data(tmp_path):
    source = open_csv(write(tmp_path, ",\n1,2\n"))
    with pytest.raises(SourceError, match="line 1, ',': could not convert string ''"):
        source.gather(slice(0, 2), [np.empty((2, 2))])


@pytest.mark.parametrize("names", ["1_1,1_2", "i,j", "infinite,nano"])
def test_names_that_only_resemble_numbers_are_a_header(tmp_path, names):
    assert len(open_csv(write(tmp_path, f"{names}\n1,2\n"))) == 1


def test_a_first_line_that_may_be_a_row_of_texts_is_refused(tmp_path):
    path = write(tmp_path, "one,two\nten,six\n")
    with pytest.raises(SourceError, match=r"x\.csv begins with 'one,two', which may be a header"):
        open_csv(path, spec={"x": "U3", "y": "U3"})
    assert len(open_csv(path, spec={"x": "U3", "y": "U3"}, header="present")) == 1
    assert len(open_csv(path, spec={"two": "U3"})) == 1


def test_a_header_of_numbers_can_be_declared(tmp_path):
    source = open_csv(write(tmp_path, "2023,2024\n1,2\n"), header="present")
    assert_rows(source, slice(0, 1), [np.array([[1.0, 2.0]])])


def test_an_absent_header_can_be_declared(tmp_path):
    source = open_csv(write(tmp_path, "one,two\nten,11\n"), header="absent", spec={"x": "U3", "y": "U3"})
    assert_rows(source, slice(0, 2), [np.array(["one", "ten"]), np.array(["two", "11"])])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3,4\n5,x\n6,7\n", r"line 3, '5,x': could not convert string 'x' to float64"),
        ("a,b\n1,2\n3\n", r"line 3, '3': it has 1 columns, not 2"),
        ("1,2\n3,4,5\n", r"line 2, '3,4,5': it has 3 columns, not 2"),
        ("1,2\n\n3,4\n", r"line 2, '': it is empty"),
        ('1,2\n"3\n",4\n', r"line 2, '\"3': it has quoted fields"),
        ("1,2\n3,\n", r"line 2, '3,': could not convert string ''"),
        ("1;2\n3;4\n", r"line 2, '3;4': could not convert"),
        (f"1,2\n3,{'x' * 500}\n", r"line 2, '3,x{58}\.\.\.'"),
    ],
)
@pytest.mark.parametrize("cached_nbytes", [2**20, -1])
def test_a_bad_line_is_named_with_its_number_and_text(tmp_path, monkeypatch, text, message, cached_nbytes):
    monkeypatch.setattr(csv_table, "_MAX_CACHED_NBYTES", cached_nbytes)
    source = open_csv(write(tmp_path, text))
    with pytest.raises(SourceError, match=message):
        source.gather(slice(0, len(source)), [np.empty((len(source), *source.specs[0].shape))])


def test_a_surplus_column_is_refused_even_if_the_spec_selects_columns(tmp_path):
    source = open_csv(write(tmp_path, "a,b\n1,2\n3,4,5\n"), spec={"b": "int64"})
    with pytest.raises(SourceError, match="line 3, '3,4,5': it has 3 columns, not 2"):
        source.gather(slice(0, 2), [np.empty(2, "i8")])


@pytest.mark.parametrize("text", ["", "\n\n", "  \r\n"])
def test_an_empty_table_is_refused(tmp_path, text):
    with pytest.raises(SourceError, match="is empty"):
        open_csv(write(tmp_path, text))


def test_a_header_that_does_not_fit_its_table_is_refused(tmp_path):
    with pytest.raises(SourceError, match="names 2 columns, but line 2 has 3"):
        open_csv(write(tmp_path, "a,b\n1,2,3\n"))


def test_a_spec_for_too_few_columns_is_refused_with_both_numbers(tmp_path):
    with pytest.raises(SpecError, match="has 3 columns, but spec= has places for 2"):
        open_csv(write(tmp_path, "1,2,3\n"), spec=ArraySpec((2,), "float32"))


def test_a_spec_for_too_many_columns_is_refused_with_both_numbers(tmp_path):
    with pytest.raises(SpecError, match="has 3 columns, but spec= has places for 4"):
        open_csv(write(tmp_path, "1,2,3\n"), spec=ArraySpec((2, 2), "float32"))


def test_a_name_shared_by_two_columns_is_refused(tmp_path):
    with pytest.raises(SpecError, match="several columns named 'a'"):
        open_csv(write(tmp_path, "a,a\n1,2\n"), spec={"a": "int64"})


def test_a_leaf_of_unknown_width_is_refused(tmp_path):
    with pytest.raises(SpecError, match="fixed number of columns"):
        open_csv(write(tmp_path, "1,2\n"), spec=ArraySpec((None,), "float32"))


def test_an_unknown_header_option_is_refused(tmp_path):
    with pytest.raises(SourceError, match="header='yes' is unknown"):
        open_csv(write(tmp_path, "1,2\n"), header="yes")


def test_a_delimiter_of_two_characters_is_refused(tmp_path):
    with pytest.raises(SourceError, match="Pass one character"):
        open_csv(write(tmp_path, "1,2\n"), delimiter="::")


def test_text_that_is_not_utf8_is_refused_with_its_position(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"1,2\n3,\xff\n")
    with pytest.raises(SourceError, match="not UTF-8 text at byte 6"):
        open_csv(tmp_path / "x.csv")


@pytest.mark.parametrize("end", ["", "\n4,5\n"])
def test_a_line_beyond_the_length_limit_is_refused(tmp_path, monkeypatch, end):
    monkeypatch.setattr(csv_lines, "_MAX_LINE_NBYTES", 1000)
    with pytest.raises(SourceError, match=r"line 2 of .* is longer than 1000 bytes"):
        open_csv(write(tmp_path, "1,2\n" + "3" * 2000 + end))


def test_a_table_that_shrinks_while_open_raises_an_error(tmp_path):
    source = open_csv(write(tmp_path, "1,2\n" * 1000))
    os.truncate(tmp_path / "x.csv", 400)
    with pytest.raises(SourceChangedError, match="has 400 now"):
        source.gather(slice(0, 1000), [np.empty((1000, 2))])


def test_only_parsed_rows_count_as_held(tmp_path):
    source = open_csv(write(tmp_path, "1,2\n" * 1000))
    source.gather(slice(0, 10), [np.empty((10, 2))])
    assert source.held_nbytes == 32 * 16


def test_rows_that_exceed_the_budget_are_not_held(tmp_path):
    np.savetxt(tmp_path / "x.csv", numbers(), delimiter=",")
    source = open_csv(tmp_path / "x.csv", max_held_nbytes=numbers().nbytes - 1)
    assert_rows(source, slice(0, 101), [numbers()])
    assert source.held_nbytes == 0


@pytest.mark.parametrize("comments", [0, 1, 30, 31, 32, 33, 999, 1000])
def test_the_header_is_found_after_any_number_of_comments(tmp_path, comments):
    (tmp_path / "x.csv").write_text("# a comment\n" * comments + "a,b\n1,2\n3,4\n")
    source = open_csv(tmp_path / "x.csv", spec={"b": "float64"})
    assert_rows(source, slice(0, 2), [np.array([2.0, 4.0])])


def test_only_the_first_lines_are_read_to_find_the_header(tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text("a,b\n" + "1,2\n" * 2000)
    read, stops = csv_lines.LineIndex.read, []
    monkeypatch.setattr(csv_lines.LineIndex, "read", lambda self, *args: stops.append(args[-1]) or read(self, *args))
    open_csv(tmp_path / "x.csv")
    assert stops == [32]


def test_an_unchanged_table_is_reopened_without_a_second_scan(tmp_path, monkeypatch):
    source = open_csv(write(tmp_path, "1,2\n3,4\n"))
    source.close()
    monkeypatch.setattr(csv_table, "scan_lines", None)
    assert_rows(source.reopener()(), slice(0, 2), [np.array([[1.0, 2.0], [3.0, 4.0]])])


def test_a_table_that_changed_is_scanned_again(tmp_path):
    source = open_csv(write(tmp_path, "1,2\n3,4\n"))
    source.close()
    write(tmp_path, "1,2\n3,4\n5,6\n")
    assert len(source.reopener()()) == 3


def test_the_index_stays_small_with_many_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_lines, "_MAX_OFFSETS", 100)
    monkeypatch.setattr(csv_lines, "_SCAN_NBYTES", 1000)
    index = scan_lines(MappedFile(write(tmp_path, "1\n" * 20_000)))
    assert (index.count, len(index.offsets) <= 200) == (20_000, True)


def write(folder, text):
    path = folder / "x.csv"
    path.write_bytes(text.encode())
    return path

"""The selection of cases and entries."""

import pytest

from forebay.measure.bench.cases.cpu import CASES
from forebay.measure.bench.contenders import CONTENDERS
from forebay.measure.bench.model import select_cases, with_fewer_rows


def test_without_names_everything_is_selected():
    assert select_cases(CASES) == list(CASES)


def test_a_case_is_selected_by_name_and_a_contender_by_any_part_of_its_name():
    (case,) = select_cases(CASES, case_names=["rows-32"], contenders=["tf.data"])
    assert [entry.label for entry in case.entries] == ["np.take loop", "tf.data shuffle(4096)"]


def test_cases_without_a_selected_contender_are_left_out():
    found = {case.name for case in select_cases(CASES, contenders=["grain"])}
    assert found == {"rows-1024", "rows-32", "images", "image-folder", "chosen-rows", "packing"}


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="no case is called 'rows'"):
        select_cases(CASES, case_names=["rows"])
    with pytest.raises(ValueError, match="no contender is called 'mxnet'"):
        select_cases(CASES, contenders=["mxnet"])


def test_every_entry_and_target_of_every_case_is_known():
    for case in CASES:
        labels = {entry.label for entry in case.entries}
        assert {entry.contender for entry in case.entries} <= set(CONTENDERS)
        assert {target.of for target in case.targets} <= labels
        assert {target.over for target in case.targets} <= labels | {None}
        assert {target.column for target in case.targets} <= {column.name for column in case.columns}
        assert case.baseline in (None, case.entries[0].label)


def test_a_case_with_fewer_rows_keeps_four_batches():
    assert [with_fewer_rows(case, 10**9).work.batches for case in CASES] == [4] * len(CASES)

"""The contenders that choose or combine rows deliver the rows that their case describes."""

import numpy as np
import pytest

from forebay.measure.bench.cases.choices import CHOICE_CASES, CHOICES
from forebay.measure.bench.contenders.forebay import feed
from forebay.measure.bench.data import make_series
from forebay.measure.bench.model import Workload
from forebay.measure.bench.row_ids import WrongRowsError, check_rows


def row_numbers(source):
    batches = feed(Workload(600, (8,), 50, options={"numbered": True, "source": source}))()
    return np.concatenate([batch[:, 0] for batch in batches]).astype(int)


@pytest.mark.parametrize(
    ("source", "rows"), [("selected", 300), ("split", 300), ("sampled", 600), ("concatenated", 600)]
)
def test_a_choice_delivers_as_many_rows_as_its_label_says(source, rows):
    numbers = row_numbers(source)
    assert len(numbers) == rows
    assert source == "sampled" or len(set(numbers.tolist())) == rows


def test_three_sources_are_mixed_by_weight():
    numbers = row_numbers("interleaved")[:300]
    assert [int((numbers // 200 == part).sum()) for part in range(3)] == [150, 90, 60]


def test_windows_are_rows_of_the_series():
    work = Workload(100, (16, 3), 10, options={"source": "windows"})
    windows = np.concatenate(list(feed(work)()))
    series = make_series(work)
    expected = np.lib.stride_tricks.sliding_window_view(series, 16, axis=0).transpose(0, 2, 1)
    assert windows.shape == expected.shape == (100, 16, 3)
    assert sorted(map(bytes, windows)) == sorted(map(bytes, np.ascontiguousarray(expected)))


def test_every_choice_is_compared_with_the_plain_shuffle():
    (case, _) = CHOICE_CASES
    assert set(CHOICES) <= {target.of for target in case.targets if target.over == case.baseline}


def test_rows_may_repeat_only_where_a_case_says_so():
    source = np.arange(6, dtype=np.float32).reshape(3, 2)
    source[:, 0] = range(3)
    check_rows(source[[1, 1]], source, may_repeat=True)
    with pytest.raises(WrongRowsError, match="only 1 different rows"):
        check_rows(source[[1, 1]], source)

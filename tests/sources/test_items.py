"""Sources of map-style datasets and lists (`ItemSource`)."""

import numpy as np
import pytest

from forebay.errors import SpecError
from forebay.sources.items import ItemSource
from forebay.testing import SourceTests


class Pairs:
    """A map-style dataset like those of PyTorch."""

    rows = np.arange(60, dtype=np.float32).reshape(20, 3)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return {"x": self.rows[row], "row": np.int64(row)}


class PairsByBatch(Pairs):
    def __getitems__(self, rows):
        return [self[row] for row in rows]


class TestItems(SourceTests):
    def make_source(self, tmp_path):
        return ItemSource(Pairs()), {"x": Pairs.rows, "row": np.arange(20)}


class TestItemsByBatch(SourceTests):
    def make_source(self, tmp_path):
        return ItemSource(PairsByBatch()), {"x": Pairs.rows, "row": np.arange(20)}


class TestListOfRows(SourceTests):
    def make_source(self, tmp_path):
        return ItemSource(list(Pairs.rows)), Pairs.rows


def test_a_row_with_other_fields_is_refused_with_its_number():
    source = ItemSource([{"x": 1}, {"x": 2}, {"y": 3}])
    with pytest.raises(SpecError, match=r"row 2 .* expected .*'x'.*, got .*'y'.*\. Give all rows the same fields"):
        source.gather_rows(slice(1, 3))

"""Sources of map-style datasets and lists (`ItemSource`)."""

import numpy as np

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

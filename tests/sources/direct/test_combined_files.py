"""Combined pipelines of files outside the page cache yield the rows of their order."""

import numpy as np
import pytest
from tests.sources.direct.readers import epoch_of, epoch_rows, pretend_uncached, write_numbered

import forebay as fb

COMBINATIONS = [
    pytest.param(lambda first, second: fb.concat(first, second), "rows, direct", id="concat"),
    pytest.param(
        lambda first, second: fb.concat(first, second).shuffle(seed=1, block=100), "blocks, direct", id="blocks"
    ),
    pytest.param(
        lambda first, second: fb.interleave(first.shuffle(seed=1, block=50), second, weights=(2, 1)),
        "rows, direct",
        id="interleave",
    ),
]


@pytest.mark.parametrize(("combine", "strategy"), COMBINATIONS)
def test_combined_files_are_read_directly(tmp_path, monkeypatch, combine, strategy):
    (first, rows), (second, others) = (write_numbered(tmp_path, rows=n, name=f"{n}.npy") for n in (3000, 2000))
    pretend_uncached(monkeypatch)
    pipeline = combine(fb.from_files(first), fb.from_files(second))
    whole = np.concatenate([rows, others])
    with pipeline.batch(64).feed("numpy") as feed:
        assert [reason.choice for reason in feed.plan.decisions if reason.name == "reading"] == [strategy]
        for epoch in range(2):
            assert np.array_equal(epoch_of(feed), whole[epoch_rows(pipeline, epoch)])


def test_zipped_files_of_different_lengths_yield_the_rows_of_their_order(tmp_path, monkeypatch):
    (first, rows), (second, others) = (write_numbered(tmp_path, rows=n, name=f"{n}.npy") for n in (3000, 2000))
    pretend_uncached(monkeypatch)
    pipeline = fb.zip_rows(fb.from_files(first).take(2000), fb.from_files(second)).shuffle(seed=1, block=100)
    with pipeline.batch(64).feed("numpy") as feed:
        received = [(one.copy(), other.copy()) for one, other in feed]
    order = epoch_rows(pipeline)
    assert np.array_equal(np.concatenate([one for one, _ in received]), rows[order])
    assert np.array_equal(np.concatenate([other for _, other in received]), others[order])

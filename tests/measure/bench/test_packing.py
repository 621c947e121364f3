"""The benchmark of packed texts: its input file, the compared packers, and the measured values."""

import numpy as np
import pytest

from forebay.measure.bench.contenders import CONTENDERS, load_contender
from forebay.measure.bench.data import TextSource, write_file
from forebay.measure.bench.meters import RunSettings, packing
from forebay.measure.bench.model import Workload

TEXTS, LENGTH, BATCH = 500, 2048, 4
OPTIONS = {"source": "packed_texts", "fit": "first"}


@pytest.fixture
def work(tmp_path):
    work = Workload(TEXTS, (LENGTH,), BATCH, dtype="uint16", options=OPTIONS)
    path = write_file(work, "texts", tmp_path)
    return Workload(TEXTS, (LENGTH,), BATCH, dtype="uint16", path=str(path), options=OPTIONS)


def test_the_texts_have_the_lengths_of_web_pages(work):
    texts = TextSource(work)
    lengths = [len(texts[number]) for number in range(len(texts))]
    assert len(texts) == TEXTS
    assert 250 < np.median(lengths) < 350
    assert max(lengths) <= LENGTH


@pytest.mark.parametrize("name", ["first_fit", "forebay"])
def test_every_packer_keeps_all_texts(work, name):
    batches = [
        {field: array.copy() for field, array in batch.items()}
        for batch in load_contender(CONTENDERS[name].location)(work)()
    ]
    lengths = [
        int(np.count_nonzero(row == number))
        for batch in batches
        for row in batch["segment_ids"]
        for number in range(1, row.max() + 1)
    ]
    assert sorted(lengths) == sorted(np.diff(TextSource(work).offsets).tolist())
    for batch in batches:
        starts = (batch["positions"] == 0) & (batch["segment_ids"] > 0)
        assert (starts.sum(axis=1) == batch["segment_ids"].max(axis=1)).all()


def test_a_sample_counts_texts_and_padding_after_the_first_batch():
    batch = {"segment_ids": np.array([[1, 1, 2, 0], [1, 2, 3, 3]])}

    def contender(work):
        return lambda: iter([batch, batch])

    sample = packing.prepare(contender, Workload(7, (4,), 2), RunSettings(10.0, 0.0, 1)).sample()
    assert sample["fill"] == 7 / 8
    assert sample["texts"] > 0
    assert sample["first"] >= 0

"""Emulations of cures for PyTorch loaders: the first batch for every batch, worker processes, and feeds.

`test_framework_cases.py` runs this file in the process of PyTorch, because frameworks conflict in one process.
"""

from dataclasses import replace
from itertools import repeat

import pytest
import torch
from tests.doctor.emulate.emulated import DATA, distinct_count, emulated, emulation_for, running
from torch.utils.data import DataLoader, Dataset, IterableDataset

from forebay.doctor.emulate.batches import MAX_BATCHES
from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.model.emulation import Emulation, EmulationKind, FeedRows


class Rows(Dataset):
    """A dataset that counts the rows that it makes in this process."""

    def __init__(self):
        self.made = 0

    def __len__(self):
        return 40

    def __getitem__(self, index):
        self.made += 1
        return DATA, index


class Stream(IterableDataset):
    def __iter__(self):
        return repeat(DATA)


def test_a_loader_returns_its_first_batch_for_every_batch():
    rows = Rows()

    def loop():
        loader = DataLoader(rows, batch_size=4)
        return [batch for _ in range(3) for batch in loader]  # target

    batches, replaced = emulated(loop, EmulationKind.RESIDENT)
    assert (len(batches), distinct_count(batches), rows.made, replaced) == (30, 1, 4, 29)


def test_a_moved_batch_is_kept_on_its_device():
    def loop():
        moved = []
        for pictures, labels in DataLoader(Rows(), batch_size=4):  # target
            moved.append((pictures.to("meta"), labels.to("meta", non_blocking=True)))
        return moved

    moved, _ = emulated(loop, EmulationKind.RESIDENT)
    assert distinct_count(pictures for pictures, _ in moved) == distinct_count(labels for _, labels in moved) == 1


def test_results_computed_from_a_batch_are_not_kept():
    def loop():
        return [(pictures * 2).to("meta") for pictures, _ in DataLoader(Rows(), batch_size=4)]  # target

    assert distinct_count(emulated(loop, EmulationKind.RESIDENT)[0]) == 10


def test_a_loader_with_persistent_workers_returns_whole_epochs():
    def loop():
        loader = DataLoader(Rows(), batch_size=4, num_workers=1, persistent_workers=True)
        return [batch for _ in range(2) for batch in loader]  # target

    batches, _ = emulated(loop, EmulationKind.RESIDENT)
    assert (len(batches), distinct_count(batches)) == (20, 1)


def test_workers_make_the_batches_of_a_loader_on_any_line():
    rows = Rows()

    def loop():
        loader = DataLoader(rows, batch_size=4)
        next(iter(loader))
        return [batch for _ in range(2) for batch in loader]

    emulator = Emulator(Emulation(EmulationKind.WORKERS, "train.py", 1, workers=2))
    with running(emulator):
        batches = loop()
    assert (len(batches), distinct_count(batches), rows.made, emulator.replaced) == (20, 20, 0, 1)
    assert [label for _, labels in batches[:10] for label in labels.tolist()] == list(range(40))
    assert next(iter(DataLoader(rows, batch_size=4)))[1].tolist() == [0, 1, 2, 3]
    assert rows.made == 4  # without the emulation, the loop makes its batches


@pytest.mark.parametrize("rows", FeedRows)
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_feed_delivers_each_row_of_a_loader_once_per_epoch(rows, shuffle):
    def loop():
        loader = DataLoader(Rows(), batch_size=6, shuffle=shuffle)
        return [batch for _ in range(2) for batch in loader]  # target

    emulator = Emulator(replace(emulation_for(loop, EmulationKind.FEED), rows=rows))
    with running(emulator):
        batches = loop()
    labels = [label for _, labels in batches for label in labels.tolist()]
    assert (len(batches), emulator.replaced, emulator.notes) == (14, 2, ())
    assert sorted(labels[:40]) == sorted(labels[40:]) == list(range(40))
    assert (labels[:40] == list(range(40))) is not shuffle
    assert isinstance(batches[0][0], torch.Tensor)


def test_loaders_on_other_lines_are_not_replaced_by_feeds():
    emulator = Emulator(Emulation(EmulationKind.FEED, "train.py", 1, rows=FeedRows.BATCHES))
    with running(emulator):
        assert len([*DataLoader(Rows(), batch_size=4)]) == 10
    assert emulator.replaced == 0


def test_a_loader_with_enough_workers_stays_as_it_is():
    loader = DataLoader(Rows(), batch_size=4, num_workers=2)
    emulator = Emulator(Emulation(EmulationKind.WORKERS, "train.py", 1, workers=2))
    emulator.start()
    try:
        assert len([*loader]) == 10
    finally:
        emulator.stop()
    assert (emulator.replaced, loader.persistent_workers) == (0, False)


def test_an_endless_loader_ends_after_max_batches():
    def loop():
        return [batch for batch in DataLoader(Stream(), batch_size=4)]  # noqa: C416  # target

    assert len(emulated(loop, EmulationKind.RESIDENT)[0]) == MAX_BATCHES


def test_two_loaders_on_one_line_keep_separate_batches():
    def loop():
        first, second = DataLoader(Rows(), batch_size=4), DataLoader(Rows(), batch_size=8)
        return [(len(a[0]), len(b[0])) for a, b in zip(first, second, strict=False)]  # target

    assert emulated(loop, EmulationKind.RESIDENT)[0] == [(4, 8)] * 5

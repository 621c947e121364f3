"""The events of PyTorch loaders: preparation and input waits.

`test_framework_cases.py` runs this file in the process of PyTorch, because frameworks conflict in one process.
"""

import random

import numpy as np
import pytest
import torch
from tests.doctor.applied_cures import apply_cure
from tests.doctor.capture.hooks.torch_watched import optimizer_of, watched
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.model.events import EventKind
from forebay.doctor.rules import input_edits
from forebay.doctor.rules.edits import format_edits


class Rows(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.from_numpy(np.full(8, index, "float32")), torch.tensor(index)


class Wrapped(Dataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.dataset[index]


class Stream(IterableDataset):
    def __iter__(self):
        yield from ({"row": np.full(8, index, "float32"), "name": "row"} for index in range(12))


class Shifted(Rows):
    def __getitem__(self, index):
        return super().__getitem__((index + int(torch.randint(12, ()))) % 12)


class Compose:
    def __init__(self, *transforms):
        self.transforms = list(transforms)


class Blur:
    def __call__(self, row):
        return row


class Transformed(Rows):
    def __init__(self, transform):
        self.transform = transform


class DrawingInMethod(Rows):
    def __getitem__(self, index):
        return self.change(super().__getitem__(index))

    def change(self, row):
        return row[0] * torch.rand(()), row[1]


class Moving(Rows):
    def __getitem__(self, index):
        return torch.ones(8).to("meta")


class Failing(Rows):
    def __getitem__(self, index):
        raise LookupError(f"no row {index}")


def stacked(rows):
    return torch.stack([row for row, _ in rows])


@pytest.fixture
def seen():
    with watched() as seen:
        yield seen


def count_batches(loader):
    return sum(1 for _ in loader)


def test_each_batch_is_one_input_wait_with_its_bytes(seen):
    assert count_batches(DataLoader(Rows(), batch_size=4)) == 3
    waits = seen.of(EventKind.INPUT)
    assert [(event.api, event.nbytes) for event in waits] == [("DataLoader", 4 * 8 * 4 + 4 * 8)] * 3
    runnable = waits[0].detail.pop("runnable")
    assert 0 < runnable <= waits[0].seconds
    assert waits[0].detail == {
        "loader": "DataLoader",
        "workers": 0,
        "pinned": False,
        "prefetch": None,
        "batch_rows": 4,
        "built_at": seen.of(EventKind.BUILD)[0].line,
    }
    assert seen.line(waits[0]).text == "return sum(1 for _ in loader)"


def test_a_batch_names_the_line_that_built_its_loader(seen):
    first = DataLoader(Rows(), batch_size=4)
    second = DataLoader(Rows(), batch_size=6)
    assert (count_batches(second), count_batches(first)) == (2, 3)
    lines = [seen.ledger.lines.read()[event.detail["built_at"]].text.split()[0] for event in seen.of(EventKind.INPUT)]
    assert lines == ["second", "second", "first", "first", "first"]


def test_each_batch_has_one_event_for_its_rows_and_one_for_collation(seen):
    count_batches(DataLoader(Rows(), batch_size=4, collate_fn=stacked))
    rows, collations = seen.of(EventKind.PREPARE)[0::2], seen.of(EventKind.PREPARE)[1::2]
    assert [event.detail for event in rows] == [{"what": "row", "count": 4}] * 3
    assert [event.detail for event in collations] == [{"what": "collate", "count": 4}] * 3
    assert seen.line(rows[0]).function == "Rows.__getitem__"
    assert seen.line(collations[0]).function == "stacked"
    assert rows[0].end == collations[0].start


def test_preparation_is_inside_the_input_wait(seen):
    count_batches(DataLoader(Rows(), batch_size=12))
    (wait,), prepared = seen.of(EventKind.INPUT), seen.of(EventKind.PREPARE)
    assert all(wait.start <= event.start <= event.end <= wait.end for event in prepared)


def test_a_conversion_inside_a_dataset_is_not_an_upload(seen):
    count_batches(DataLoader(Rows(), batch_size=4, shuffle=True))
    assert seen.apis(EventKind.UPLOAD, EventKind.DOWNLOAD) == []


def test_a_move_to_a_device_inside_a_dataset_is_an_upload(seen):
    count_batches(DataLoader(Moving(), batch_size=4))
    assert seen.apis(EventKind.UPLOAD) == ["Tensor.to"] * 12
    assert {seen.line(event).text for event in seen.of(EventKind.UPLOAD)} == {'return torch.ones(8).to("meta")'}


class Waiting(Rows):
    def __getitem__(self, index):
        torch.cuda.synchronize()
        return torch.ones(8)


def test_a_wait_for_the_device_inside_a_dataset_is_recorded(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    with watched() as seen:
        count_batches(DataLoader(Waiting(), batch_size=4))
    assert seen.apis(EventKind.SYNC) == ["torch.cuda.synchronize"] * 12


@pytest.mark.parametrize(
    ("dataset", "function"),
    [
        (Subset(Rows(), range(4)), "Rows.__getitem__"),
        (Wrapped(Rows()), "Wrapped.__getitem__"),
        (Wrapped(TensorDataset(torch.ones(4))), "Wrapped.__getitem__"),
        (Rows() + Rows(), "Rows.__getitem__"),
        (Stream(), "Stream.__iter__"),
        (TensorDataset(torch.ones(4)), "count_batches"),
    ],
)
def test_rows_are_recorded_at_the_line_of_the_users_dataset(seen, dataset, function):
    count_batches(DataLoader(dataset, batch_size=4))
    assert seen.line(seen.of(EventKind.PREPARE)[0]).function.startswith(function)


def test_the_bytes_of_batches_that_are_trees_are_recorded(seen):
    count_batches(DataLoader(Stream(), batch_size=4))
    assert [(event.nbytes, event.detail["batch_rows"]) for event in seen.of(EventKind.INPUT)] == [(128, 4)] * 3


def test_with_worker_processes_input_waits_are_recorded_but_no_preparation(seen):
    assert count_batches(DataLoader(Rows(), batch_size=4, num_workers=1, prefetch_factor=3)) == 3
    waits = seen.of(EventKind.INPUT)
    assert [(event.detail["workers"], event.detail["prefetch"]) for event in waits] == [(1, 3)] * 3
    assert seen.of(EventKind.PREPARE) == []


def test_a_loader_and_each_of_its_epochs_are_builds(seen):
    loader = DataLoader(Rows(), batch_size=4)
    count_batches(loader), count_batches(loader)
    construction, *epochs = seen.of(EventKind.BUILD)
    assert (construction.api, [event.api for event in epochs]) == ("DataLoader(...)", ["iter(DataLoader)"] * 2)
    settings = {"workers": 0, "pinned": False, "prefetch": None, "persistent": False, "batch_rows": 4}
    line = seen.ledger.lines.read()[construction.detail.pop("rows_at")]
    assert (line.function, line.text) == ("Rows.__getitem__", "def __getitem__(self, index):")
    assert construction.detail == {"what": "DataLoader", **settings, "dataset_rows": 12, "random_rows": False}


@pytest.mark.parametrize(
    "dataset",
    [
        Shifted(),
        DrawingInMethod(),
        Wrapped(Shifted()),
        ConcatDataset([Rows(), Shifted()]),
        Transformed(Compose(Compose(Blur()))),
        Transformed(lambda row: row + torch.rand(())),
    ],
)
def test_rows_that_may_differ_between_epochs_are_random(seen, dataset):
    DataLoader(dataset, batch_size=4)
    (construction,) = seen.of(EventKind.BUILD)
    assert construction.detail["random_rows"]


def test_the_doctor_does_not_iterate_over_attributes_of_a_dataset(seen):
    dataset = Rows()
    dataset.datasets = iter([Rows(), Rows()])
    count_batches(DataLoader(dataset, batch_size=4))
    assert len([*dataset.datasets]) == 2


class ToTensor:
    def __call__(self, row):
        return row


@pytest.mark.parametrize("transform", [None, ToTensor(), Compose(ToTensor()), lambda row: row / 255])
def test_rows_with_known_transforms_are_not_random(seen, transform):
    DataLoader(Transformed(transform), batch_size=4)
    (construction,) = seen.of(EventKind.BUILD)
    assert not construction.detail["random_rows"]


class Augmented(Rows):
    def __init__(self):
        self.rng, self.random = np.random.default_rng(), random
        self.transform = Drawing()


class Drawing:
    def __init__(self):
        self.generator = random.Random(1)

    def __call__(self, row):
        return row


class OwnRandom(random.Random):
    pass


class SeveralGenerators(Rows):
    def __init__(self):
        self.rng, self.generator = OwnRandom(1), torch.Generator()
        self.transform = Compose(Drawing())
        self.rows = list(range(1000))


@pytest.mark.parametrize(
    ("dataset", "generators"),
    [
        (SeveralGenerators(), "rng: Random, generator: torch.Generator, transform.transforms[0].generator: Random"),
        (Augmented(), "rng: Generator, transform.generator: Random"),
        (Wrapped(Augmented()), "dataset.rng: Generator, dataset.transform.generator: Random"),
        (Rows(), None),
    ],
)
def test_generators_that_a_dataset_holds_are_recorded(seen, dataset, generators):
    DataLoader(dataset, batch_size=4)
    (construction,) = seen.of(EventKind.BUILD)
    assert construction.detail.get("generators") == generators


def test_the_cure_gives_each_worker_process_its_own_generators():
    class Noise(Augmented):
        def __init__(self):
            super().__init__()
            self.noise = [torch.Generator()]

        def __getitem__(self, index):
            noise = torch.rand((), generator=self.noise[0]).item()
            return torch.tensor([self.rng.random(), self.transform.generator.random(), noise])

    source = "loader = DataLoader(dataset, batch_size=1)"
    held = ["rng: Generator", "transform.generator: Random", "noise[0]: torch.Generator"]
    edits = input_edits.change_loader(ScriptCode(source), 1, held, num_workers="2")
    for text, number in [(apply_cure(source, format_edits(edits)), 6), (f"{source[:-1]}, num_workers=2)", 3)]:
        names = {"DataLoader": DataLoader, "dataset": Noise()}
        exec(text, names)
        first, second, *_ = names["loader"]  # of two workers
        assert len({*first.flatten().tolist(), *second.flatten().tolist()}) == number


class Unsized(Rows):
    def __len__(self):
        raise RuntimeError("no length")


@pytest.mark.parametrize("loader", [{"dataset": Stream(), "batch_size": 4}, {"dataset": Unsized(), "sampler": [1, 2]}])
def test_a_dataset_without_a_length_has_no_number_of_rows(seen, loader):
    DataLoader(**loader)
    (construction,) = seen.of(EventKind.BUILD)
    assert not {"dataset_rows", "random_rows"} & {*construction.detail}
    assert seen.ledger.notes == []


class DividedStream(Stream):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        return iter(range(0 if worker is None else worker.id, 12, 1 if worker is None else worker.num_workers))


@pytest.mark.parametrize(
    ("loader", "kind"),
    [
        ({"dataset": Stream()}, "whole"),
        ({"dataset": DividedStream()}, "divided"),
        ({"dataset": Wrapped(DividedStream())}, None),
        ({"dataset": Stream(), "worker_init_fn": print}, "divided"),
        ({"dataset": Rows()}, None),
    ],
)
def test_the_event_of_a_stream_says_whether_workers_divide_its_rows(seen, loader, kind):
    DataLoader(**loader)
    (construction,) = seen.of(EventKind.BUILD)
    assert construction.detail.get("stream") == kind


def test_an_error_of_a_dataset_passes_and_the_next_loader_is_recorded(seen):
    with pytest.raises(LookupError, match="no row 0"):
        count_batches(DataLoader(Failing(), batch_size=4))
    count_batches(DataLoader(Rows(), batch_size=4))
    assert len(seen.of(EventKind.INPUT)) == 3


def test_nothing_is_recorded_after_profiling():
    with watched() as seen:
        optimizer = optimizer_of(3)
    optimizer.step()
    count_batches(DataLoader(Rows(), batch_size=4))
    assert seen.ledger.events == []

"""Emulations of cures for PyTorch.

`test_framework_cases.py` runs this file in the process of PyTorch, because frameworks clash in one process.
"""

from itertools import repeat
from operator import methodcaller

import numpy as np
import pytest
import torch
from tests.doctor.emulate.emulated import emulated, emulating, without_setting
from torch.utils.data import DataLoader, Dataset, IterableDataset

from forebay.doctor.emulate.batches import MAX_BATCHES
from forebay.doctor.model.emulation import EmulationKind

DATA = np.arange(4096, dtype="float32")
OTHERS = [np.full(4096, number, dtype="float32") for number in range(4)]


def distinct_count(values):
    return len({id(value) for value in values})


def test_the_same_data_is_uploaded_once():
    def loop():
        return [torch.tensor(DATA) for _ in range(20)]  # target

    tensors, replaced = emulated(loop, EmulationKind.REMEMBER)
    assert (distinct_count(tensors), replaced) == (1, 19)
    assert tensors[0].tolist() == DATA.tolist()


def test_other_data_is_uploaded():
    def loop():
        return [torch.tensor(data) for data in OTHERS * 2]  # target

    tensors, replaced = emulated(loop, EmulationKind.REMEMBER)
    assert [tensor[0].item() for tensor in tensors] == [0, 1, 2, 3] * 2
    assert (distinct_count(tensors), replaced) == (4, 4)


def test_data_that_changed_in_place_is_uploaded():
    def loop():
        data, tensors = DATA.copy(), []
        for number in range(6):
            data[0] = number
            tensors.append(torch.tensor(data))  # target
        return tensors

    tensors, replaced = emulated(loop, EmulationKind.REMEMBER)
    assert [tensor[0].item() for tensor in tensors] == [0, 1, 2, 3, 4, 5]
    assert replaced == 0


def test_equal_lists_are_uploaded_once():
    rows = [[float(number)] * 8 for number in range(32)]

    def loop():
        return [torch.tensor(rows) for _ in range(5)]  # target

    assert emulated(loop, EmulationKind.REMEMBER)[1] == 4


def test_other_lines_are_left_alone():
    def loop():
        torch.tensor(DATA)  # target
        return [torch.tensor(DATA) for _ in range(5)]

    tensors, replaced = emulated(loop, EmulationKind.REMEMBER)
    assert (distinct_count(tensors), replaced) == (5, 0)


def test_the_same_tensor_is_moved_once():
    def loop():
        return [torch.from_numpy(DATA).to("meta") for _ in range(5)]  # target

    tensors, replaced = emulated(loop, EmulationKind.REMEMBER)
    assert (distinct_count(tensors), replaced, tensors[0].device.type) == (1, 8, "meta")


def test_tensors_with_gradients_are_not_replaced():
    def loop():
        weight = torch.ones(4096, requires_grad=True)
        for _ in range(3):
            loss = weight.to(torch.float64).sum() + torch.tensor(DATA, requires_grad=True).sum()  # target
            loss.backward()
        return weight.grad

    grad, replaced = emulated(loop, EmulationKind.REUSE)
    assert (grad[0].item(), replaced) == (3, 0)


def test_reuse_replaces_all_uploads_of_the_same_kind():
    def loop():
        return [torch.as_tensor(data) for data in (*OTHERS, OTHERS[0][:10])]  # target

    tensors, replaced = emulated(loop, EmulationKind.REUSE)
    assert [len(tensor) for tensor in tensors] == [4096] * 4 + [10]
    assert (distinct_count(tensors), replaced) == (2, 3)


def test_one_upload_in_every_n_is_made():
    def loop():
        return [torch.tensor([float(number)] * 300)[0].item() for number in range(12)]  # target

    assert emulated(loop, EmulationKind.REUSE, every=4) == ([0, 0, 0, 3, 3, 3, 3, 7, 7, 7, 7, 11], 8)


def test_one_read_in_every_n_is_made():
    def loop():
        return [torch.tensor(float(number)).item() for number in range(10)]  # target

    assert emulated(loop, EmulationKind.DEFER, every=5) == ([0, 0, 0, 0, 4, 4, 4, 4, 4, 9], 7)


@pytest.mark.parametrize("read", [float, int, bool, str, np.asarray, methodcaller("tolist"), methodcaller("numpy")])
def test_every_kind_of_read_is_deferred(read):
    def loop():
        return [read(torch.full((1,), float(number))) for number in range(3)]  # target

    values, replaced = emulated(loop, EmulationKind.DEFER)
    assert values[0] == values[1] == values[2]
    assert replaced >= 2


def test_a_deferred_read_keeps_its_shape():
    def loop():
        return [torch.ones(rows).cpu().numpy() for rows in (2, 3, 2, 3)]  # target

    assert [len(value) for value in emulated(loop, EmulationKind.DEFER)[0]] == [2, 3, 2, 3]


def test_waits_for_the_device_are_skipped(monkeypatch):
    waits = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))

    def loop():
        for _ in range(10):
            torch.cuda.synchronize()  # target

    assert emulated(loop, EmulationKind.SKIP, every=100)[1] == 9
    assert len(waits) == 1


def test_uploads_use_one_page_locked_buffer_and_do_not_block(monkeypatch):
    sent, move = [], torch.Tensor.to
    monkeypatch.setattr(
        torch.Tensor, "to", lambda *args, **kwargs: sent.append((args, kwargs)) or move(*args, **kwargs)
    )

    def loop():
        return [torch.from_numpy(data).to("meta") for data in OTHERS]  # target

    tensors, replaced = emulated(loop, EmulationKind.LOCK)
    assert (distinct_count(tensors), replaced) == (4, 4)
    assert distinct_count(args[0] for args, _ in sent) == 1
    assert [kwargs for _, kwargs in sent] == [{"non_blocking": True}] * 4


def test_a_positional_non_blocking_flag_is_set(monkeypatch):
    sent, move = [], torch.Tensor.to
    monkeypatch.setattr(
        torch.Tensor, "to", lambda *args, **kwargs: sent.append((args, kwargs)) or move(*args, **kwargs)
    )

    def loop():
        return torch.from_numpy(DATA).to("meta", torch.float32, False)  # target

    emulated(loop, EmulationKind.LOCK)
    assert (sent[0][0][1:], sent[0][1]) == (("meta", torch.float32, True), {})


def test_numbers_are_narrowed_before_they_are_uploaded():
    doubles = [data.astype("float64") for data in OTHERS]

    def loop():
        return [torch.from_numpy(data).to("meta").float() for data in doubles]  # target

    tensors, replaced = emulated(loop, EmulationKind.NARROW)
    assert {tensor.dtype for tensor in tensors} == {torch.float32}
    assert (distinct_count(tensors), replaced) == (4, 4)


def test_an_upload_starts_one_step_early():
    def loop():
        return [torch.full((number + 1,), number).repeat(2).to("meta").shape[0] for number in (0, 0, 1, 1)]  # target

    # Each call returns the previous upload of a tensor of the same shape, if there is one.
    assert emulated(loop, EmulationKind.PREFETCH) == ([2, 2, 4, 4], 2)


class Rows(Dataset):
    """Counts the rows it has made, in this process."""

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


def test_an_endless_loader_ends_after_max_batches():
    def loop():
        return [batch for batch in DataLoader(Stream(), batch_size=4)]  # noqa: C416  # target

    assert len(emulated(loop, EmulationKind.RESIDENT)[0]) == MAX_BATCHES


def test_two_loaders_on_one_line_keep_separate_batches():
    def loop():
        first, second = DataLoader(Rows(), batch_size=4), DataLoader(Rows(), batch_size=8)
        return [(len(a[0]), len(b[0])) for a, b in zip(first, second, strict=False)]  # target

    assert emulated(loop, EmulationKind.RESIDENT)[0] == [(4, 8)] * 5


def test_all_replacements_are_removed():
    before = [torch.tensor, torch.as_tensor, torch.Tensor.to, torch.Tensor.item, torch.cuda.synchronize]

    def loop():
        return torch.tensor(DATA)  # target

    for kind in EmulationKind:
        emulated(loop, kind)
    after = [torch.tensor, torch.as_tensor, torch.Tensor.to, torch.Tensor.item, torch.cuda.synchronize]
    assert all(one is other for one, other in zip(before, after, strict=True))


def test_a_replacement_equals_its_original():
    original = torch.tensor

    def loop():
        torch.tensor(DATA)  # target

    with emulating(loop, EmulationKind.REMEMBER):
        assert torch.tensor is not original
        assert torch.tensor == original
        assert hash(torch.tensor) == hash(original)
        with torch.device("meta"):
            assert torch.tensor([1.0]).device.type == "meta"


def test_compiled_functions_stay_compiled():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=backend)
    def step(batch, weight):
        return (batch * weight.to(batch.dtype)).sum()

    def loop():
        return [step(torch.tensor(DATA), torch.ones(4096)) for _ in range(5)]  # target

    assert emulated(loop, EmulationKind.REMEMBER)[1] == 4
    assert len(graphs) == 1


def test_anomaly_mode_is_kept_off():
    def loop():
        torch.autograd.set_detect_anomaly(True)
        with torch.autograd.set_detect_anomaly(True):
            return torch.is_anomaly_enabled()

    assert without_setting("torch.autograd.set_detect_anomaly", loop) == (False, 2)
    assert not torch.is_anomaly_enabled()


def test_another_setting_is_left_as_it_is():
    def loop():
        torch.use_deterministic_algorithms(True)
        is_on = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(False)
        return is_on

    assert without_setting("torch.autograd.set_detect_anomaly", loop) == (True, 0)
    assert without_setting("torch.use_deterministic_algorithms", loop) == (False, 1)


def test_the_profiler_is_kept_off():
    def loop():
        with torch.profiler.profile() as profiler:
            profiler.step()
            inside = torch.autograd._profiler_enabled()
        with torch.autograd.profiler.profile():
            return inside, torch.autograd._profiler_enabled()

    result, replaced = without_setting("torch.profiler", loop)
    assert result == (False, False)
    assert replaced

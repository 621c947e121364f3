"""Emulations of cures for the uploads, reads and waits of PyTorch.

`test_framework_cases.py` runs this file in the process of PyTorch, because frameworks conflict in one process.
"""

from operator import methodcaller

import numpy as np
import pytest
import torch
from tests.doctor.emulate.emulated import DATA, OTHERS, distinct_count, emulated, emulating

from forebay.doctor.model.emulation import EmulationKind


@pytest.fixture
def sent(monkeypatch):
    """Return the arguments of all calls of `Tensor.to`."""
    calls, move = [], torch.Tensor.to
    monkeypatch.setattr(
        torch.Tensor, "to", lambda *args, **kwargs: calls.append((args, kwargs)) or move(*args, **kwargs)
    )
    return calls


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


def test_reuse_replaces_all_uploads_of_the_same_shape():
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


def test_uploads_use_one_page_locked_buffer_and_do_not_block(sent):
    def loop():
        return [torch.from_numpy(data).to("meta") for data in OTHERS]  # target

    tensors, replaced = emulated(loop, EmulationKind.LOCK)
    assert (distinct_count(tensors), replaced) == (4, 4)
    assert distinct_count(args[0] for args, _ in sent) == 1
    assert [kwargs for _, kwargs in sent] == [{"non_blocking": True}] * 4


def test_a_positional_non_blocking_flag_is_set(sent):
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


def test_all_replacements_are_removed():
    def functions():
        return [torch.tensor, torch.as_tensor, torch.Tensor.to, torch.Tensor.item, torch.cuda.synchronize]

    def loop():
        return torch.tensor(DATA)  # target

    before = functions()
    for kind in EmulationKind:
        emulated(loop, kind)
    assert all(one is other for one, other in zip(before, functions(), strict=True))


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

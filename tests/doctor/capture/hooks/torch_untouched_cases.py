"""What is watched is what it was: results, errors, gradients, subclasses, copies; and afterwards nothing is left."""

import copy
import inspect
import io
import pickle
import types

import numpy as np
import pytest
import torch
from tests.doctor.capture.hooks.torch_watched import watched
from torch.overrides import TorchFunctionMode
from torch.utils import _device
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, dataloader
from torch.utils.data._utils import fetch

from forebay.doctor.capture.device.ledger import active_profiler
from forebay.doctor.model.events import EventKind

OWNERS = (
    torch,
    torch.Tensor,
    torch.nn.Module,
    torch.cuda,
    torch.cuda.Event,
    torch.cuda.Stream,
    torch.cuda.CUDAGraph,
    DataLoader,
    dataloader._BaseDataLoaderIter,
    fetch._MapDatasetFetcher,
    fetch._IterableDatasetFetcher,
)


class Labelled(torch.Tensor):
    """A subclass that keeps a table of the functions it handles, as libraries do."""

    handled = frozenset()
    calls = ()

    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        cls.calls = (*cls.calls, function.__name__)
        result = super().__torch_function__(function, kinds, args, kwargs or {})
        return result.as_subclass(cls) if function in cls.handled else torch.Tensor.as_subclass(result, torch.Tensor)


class Modes(TorchFunctionMode):
    def __init__(self):
        self.calls = []

    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        self.calls.append(function.__name__)
        return function(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
        self.calls.append(str(function))
        return function(*args, **(kwargs or {}))


def scripted(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float64) + torch.tensor([1.0, 2.0])


def scripted_later(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float64) - torch.tensor([1.0, 2.0])


def traced(x):
    return x.to(torch.float64)[0].cpu() + x.to(x.device).to("meta").shape[0]


def attributes():
    return [(owner, dict(vars(owner))) for owner in OWNERS]


def test_every_attribute_is_put_back():
    before = attributes()
    with watched():
        assert "item" in vars(torch.Tensor)  # else inherited
    for owner, kept in before:
        assert {name for name in kept if vars(owner).get(name) is not kept[name]} == set()
        assert vars(owner).keys() == kept.keys()


def test_whoever_kept_a_stand_in_has_the_plain_function_afterwards():
    with watched() as seen:
        kept = torch.tensor
    assert kept([1.0]).item() == 1.0
    assert seen.ledger.events == []


def test_a_stand_in_passes_for_what_it_stands_for():
    original, method = torch.tensor, torch.Tensor.item
    with watched():
        assert torch.tensor is not original
        assert torch.tensor in {original}
        assert original in {torch.tensor}
        assert torch.Tensor.item == method
        assert isinstance(torch.tensor, types.BuiltinFunctionType)
        assert isinstance(torch.Tensor.item, types.MethodDescriptorType)
        assert inspect.signature(DataLoader.__init__).parameters.keys() >= {"dataset", "num_workers"}


def test_a_stand_in_is_pickled_and_copied_by_name():
    original = torch.from_numpy
    with watched():
        kept = torch.from_numpy
        assert pickle.loads(pickle.dumps(kept)) is kept
        written = pickle.dumps([kept, torch.Tensor.item, DataLoader.__init__])
    assert pickle.loads(written) == [original, torch.Tensor.item, DataLoader.__init__]
    assert copy.deepcopy(kept) is original


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: torch.tensor("text"),
        lambda: torch.ones(2).item(),
        lambda: torch.ones(2).to("nowhere"),
        lambda: torch.ones(2).copy_(torch.ones(3)),
        lambda: torch.ones(2)[5],
        lambda: float(torch.ones(2)),
        lambda: torch.Tensor.item(),
    ],
)
def test_errors_pass_unchanged(wrong):
    with pytest.raises(Exception) as plain:  # noqa: PT011  # whichever torch raises
        wrong()
    with watched() as seen:
        with pytest.raises(type(plain.value)) as found:
            wrong()
        torch.ones(()).item()
    assert str(found.value) == str(plain.value)
    assert seen.apis(EventKind.DOWNLOAD) == ["Tensor.item"]


def test_gradients_flow_through():
    x = torch.ones(4, requires_grad=True)
    with watched():
        y = torch.zeros(4, dtype=torch.float64)
        y = y.copy_(x.to(torch.float64)) * 3
        y[1:].sum().backward()
        y.detach().numpy()[0] = 7
    assert x.grad.tolist() == [0, 3, 3, 3]
    assert y[0].item() == 7


def test_tensors_are_copied_and_pickled_as_ever():
    model = torch.nn.Linear(3, 3)
    with watched():
        copied, read = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        loaded = torch.load(file)
    for weights in (copied.weight, read.weight, loaded["weight"]):
        assert torch.equal(weights, model.weight)
    assert type(copied.weight) is torch.nn.Parameter


def test_numpy_takes_tensors_as_ever():
    with watched():
        tensor = torch.arange(4)
        assert np.shares_memory(np.asarray(tensor), tensor.numpy())
        assert np.asarray(tensor, dtype="float32").dtype == np.float32
        assert np.array(tensor).sum() == 6


@pytest.mark.parametrize("first", ["watched", "plain"])
def test_a_default_device_applies_whoever_asks_first(first):
    _device._device_constructors.cache_clear()
    with torch.device("meta"):
        if first == "plain":
            torch.tensor(1.0)
        with watched():
            assert torch.tensor(1.0).device.type == "meta"
            assert torch.as_tensor([1.0]).device.type == "meta"
        assert torch.tensor(1.0).device.type == "meta"


def test_a_subclass_with_a_table_handles_the_same_functions_afterwards():
    with watched():
        Labelled.handled = frozenset({torch.Tensor.to})
        assert type(torch.ones(2).as_subclass(Labelled).to(torch.float64)) is Labelled
    assert type(torch.ones(2).as_subclass(Labelled).to(torch.float64)) is Labelled


def test_a_table_made_before_serves_too():
    Labelled.handled = frozenset({torch.Tensor.to})
    with watched():
        assert type(torch.ones(2).as_subclass(Labelled).to(torch.float64)) is Labelled


def calls_of_a_subclass():
    Labelled.calls = ()
    tensor = torch.ones(2000).as_subclass(Labelled)
    tensor.to("meta"), tensor.sum().item(), tensor[tensor > 0], tensor.copy_(torch.ones(2000))
    return Labelled.calls


def test_a_subclass_does_not_notice_that_it_is_watched():
    plain = calls_of_a_subclass()
    with watched() as seen:
        assert calls_of_a_subclass() == plain
    assert seen.apis(EventKind.UPLOAD) == ["Tensor.to"]


def calls_of_a_mode():
    with Modes() as mode:
        tensor = torch.tensor([1.0])
        tensor.to("meta"), tensor.item(), tensor[0]
    return mode.calls


def test_a_mode_does_not_notice_either():
    plain = calls_of_a_mode()
    with watched():
        assert calls_of_a_mode() == plain


def calls_of_a_dispatch_mode():
    with Dispatched() as mode:
        tensor = torch.ones(2000)
        tensor.to("meta"), tensor.sum().item(), torch.tensor(np.ones(2000)), tensor[tensor > 0]
    return mode.calls


def test_nor_does_a_mode_that_sees_every_operation():
    plain = calls_of_a_dispatch_mode()
    with watched() as seen:
        assert calls_of_a_dispatch_mode() == plain
    assert seen.apis(EventKind.UPLOAD) == ["Tensor.to", "torch.tensor"]


def test_what_is_scripted_while_watched_can_be_scripted_afterwards():
    with watched():
        assert torch.jit.script(scripted)(torch.ones(2)).tolist() == [2, 3]
    assert torch.jit.script(scripted_later)(torch.ones(2)).tolist() == [0, -1]


def operations_traced():
    graph = torch.jit.trace(traced, torch.ones(2), check_trace=False).graph
    return [node.kind() for node in graph.nodes()]


def test_a_trace_holds_nothing_of_ours():
    plain = operations_traced()
    with watched():
        assert operations_traced() == plain


def test_vectorised_functions_are_what_they_were():
    with watched() as seen:
        mapped = torch.vmap(lambda row: row.to(torch.float64).to("meta"))(torch.ones(3, 1000))
    assert mapped.shape == (3, 1000)
    assert seen.ledger.notes == []


def test_an_exported_graph_is_what_it_was():
    module = torch.nn.Linear(3, 3)
    plain = torch.export.export(module, (torch.ones(2, 3),)).graph_module.code
    with watched():
        found = torch.export.export(module, (torch.ones(2, 3),)).graph_module.code
    assert found == plain


def test_a_active_profiler_is_known():
    with torch.profiler.profile():
        name = active_profiler()
    assert (name, active_profiler()) == ("torch.profiler", None)

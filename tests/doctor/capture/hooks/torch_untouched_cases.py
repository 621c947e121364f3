"""Profiling changes no result, error, gradient, subclass or copy of PyTorch, and all hooks are removed.

`test_framework_cases.py` runs this file in the process of PyTorch, because frameworks conflict in one process.
"""

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

OWNERS = (  # modules and classes whose attributes the hooks replace
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
LARGE = 2000  # numbers in a tensor; for so many, a hook reads the data to compute its key


class Labelled(torch.Tensor):
    """A subclass. Only the functions in the table `handled` return this type, as in some libraries."""

    handled = frozenset()
    calls = ()

    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        cls.calls = (*cls.calls, function.__name__)
        result = super().__torch_function__(function, kinds, args, kwargs or {})
        return result.as_subclass(cls) if function in cls.handled else torch.Tensor.as_subclass(result, torch.Tensor)


class RecordingMode(TorchFunctionMode):
    """Records the names of the functions that are called on tensors."""

    def __init__(self):
        self.calls = []

    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        self.calls.append(function.__name__)
        return function(*args, **(kwargs or {}))


class RecordingDispatchMode(TorchDispatchMode):
    """Records the names of the operators that PyTorch dispatches."""

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


def test_every_patched_attribute_is_restored():
    before = attributes()
    with watched():
        assert "item" in vars(torch.Tensor)  # without a hook, the class only inherits it
    for owner, kept in before:
        assert {name for name in kept if vars(owner).get(name) is not kept[name]} == set()
        assert vars(owner).keys() == kept.keys()


def test_a_proxy_kept_after_profiling_calls_its_original():
    with watched() as seen:
        kept = torch.tensor
    assert kept([1.0]).item() == 1.0
    assert seen.ledger.events == []


def test_a_proxy_equals_its_original_and_has_its_type():
    original, method = torch.tensor, torch.Tensor.item
    with watched():
        assert torch.tensor is not original
        assert torch.tensor in {original}
        assert original in {torch.tensor}
        assert torch.Tensor.item == method
        assert isinstance(torch.tensor, types.BuiltinFunctionType)
        assert isinstance(torch.Tensor.item, types.MethodDescriptorType)
        assert inspect.signature(DataLoader.__init__).parameters.keys() >= {"dataset", "num_workers"}


def test_a_proxy_is_pickled_and_copied_by_name():
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
    with pytest.raises(Exception) as plain:  # noqa: PT011  # the type depends on the call
        wrong()
    with watched() as seen:
        with pytest.raises(type(plain.value)) as found:
            wrong()
        torch.ones(()).item()  # must be recorded, although the call before it failed
    assert str(found.value) == str(plain.value)
    assert seen.apis(EventKind.DOWNLOAD) == ["Tensor.item"]


def test_gradients_flow_through_hooked_calls():
    x = torch.ones(4, requires_grad=True)
    with watched():
        y = torch.zeros(4, dtype=torch.float64)
        y = y.copy_(x.to(torch.float64)) * 3
        y[1:].sum().backward()
        y.detach().numpy()[0] = 7
    assert x.grad.tolist() == [0, 3, 3, 3]
    assert y[0].item() == 7


def test_modules_can_be_copied_pickled_and_saved():
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


def test_numpy_accepts_tensors():
    with watched():
        tensor = torch.arange(4)
        assert np.shares_memory(np.asarray(tensor), tensor.numpy())
        assert np.asarray(tensor, dtype="float32").dtype == np.float32
        assert np.array(tensor).sum() == 6


@pytest.mark.parametrize("first", ["profiled", "plain"])
def test_a_default_device_applies_to_profiled_and_plain_calls(first):
    _device._device_constructors.cache_clear()  # the first call below fills this table of functions again
    with torch.device("meta"):
        if first == "plain":
            torch.tensor(1.0)
        with watched():
            assert torch.tensor(1.0).device.type == "meta"
            assert torch.as_tensor([1.0]).device.type == "meta"
        assert torch.tensor(1.0).device.type == "meta"


def test_a_function_table_built_during_profiling_is_valid_afterwards():
    with watched():
        Labelled.handled = frozenset({torch.Tensor.to})
        assert type(torch.ones(2).as_subclass(Labelled).to(torch.float64)) is Labelled
    assert type(torch.ones(2).as_subclass(Labelled).to(torch.float64)) is Labelled


def test_a_function_table_built_before_profiling_stays_valid():
    Labelled.handled = frozenset({torch.Tensor.to})
    with watched():
        assert type(torch.ones(2).as_subclass(Labelled).to(torch.float64)) is Labelled


def calls_of_a_subclass():
    Labelled.calls = ()
    tensor = torch.ones(LARGE).as_subclass(Labelled)
    tensor.to("meta"), tensor.sum().item(), tensor[tensor > 0], tensor.copy_(torch.ones(LARGE))
    return Labelled.calls


def test_a_tensor_subclass_gets_the_same_calls():
    plain = calls_of_a_subclass()
    with watched() as seen:
        assert calls_of_a_subclass() == plain
    assert seen.apis(EventKind.UPLOAD) == ["Tensor.to"]


def calls_of_a_mode():
    with RecordingMode() as mode:
        tensor = torch.tensor([1.0])
        tensor.to("meta"), tensor.item(), tensor[0]
    return mode.calls


def test_a_torch_function_mode_gets_the_same_calls():
    plain = calls_of_a_mode()
    with watched():
        assert calls_of_a_mode() == plain


def calls_of_a_dispatch_mode():
    with RecordingDispatchMode() as mode:
        tensor = torch.ones(LARGE)
        tensor.to("meta"), tensor.sum().item(), torch.tensor(np.ones(LARGE)), tensor[tensor > 0]
    return mode.calls


def test_a_dispatch_mode_gets_the_same_calls():
    plain = calls_of_a_dispatch_mode()
    with watched() as seen:
        assert calls_of_a_dispatch_mode() == plain
    assert seen.apis(EventKind.UPLOAD) == ["Tensor.to", "torch.tensor"]


def test_functions_can_be_scripted_during_and_after_profiling():
    with watched():
        assert torch.jit.script(scripted)(torch.ones(2)).tolist() == [2, 3]
    assert torch.jit.script(scripted_later)(torch.ones(2)).tolist() == [0, -1]


def operations_traced():
    graph = torch.jit.trace(traced, torch.ones(2), check_trace=False).graph
    return [node.kind() for node in graph.nodes()]


def test_a_jit_trace_has_the_same_operations():
    plain = operations_traced()
    with watched():
        assert operations_traced() == plain


def test_vmap_works_during_profiling():
    with watched() as seen:
        mapped = torch.vmap(lambda row: row.to(torch.float64).to("meta"))(torch.ones(3, 1000))
    assert mapped.shape == (3, 1000)
    assert seen.ledger.notes == []


def test_an_exported_graph_has_the_same_code():
    module = torch.nn.Linear(3, 3)
    plain = torch.export.export(module, (torch.ones(2, 3),)).graph_module.code
    with watched():
        profiled = torch.export.export(module, (torch.ones(2, 3),)).graph_module.code
    assert profiled == plain


def test_an_active_torch_profiler_is_detected():
    with torch.profiler.profile():
        name = active_profiler()
    assert (name, active_profiler()) == ("torch.profiler", None)

"""Profiling keeps the number of graphs of `torch.compile`, and records each compilation but no calls inside a graph.

`test_framework_cases.py` runs this file in the process of PyTorch, because frameworks conflict in one process.
"""

import copy
import pickle
import sys
from types import FunctionType

import numpy as np
import pytest
import torch
from tests.doctor.capture.hooks.torch_watched import watched
from torch._dynamo import callback, convert_frame, eval_frame, utils
from torch._dynamo.callback import callback_handler

from forebay.doctor.model.events import EventKind

# Older versions of PyTorch do not report reasons or backward passes, so the doctor cannot record them.
with_reasons = pytest.mark.skipif(
    not hasattr(utils.CompilationMetrics, "recompile_reason"), reason="this PyTorch reports no reasons of compilations"
)
with_backward = pytest.mark.skipif(
    not hasattr(callback, "CallbackTrigger"), reason="this PyTorch does not report the compilation of a backward pass"
)
ARRAY = np.ones(3, dtype="float32")
ONE_GRAPH = {
    "to": lambda x: x.to(torch.float64).cpu() + 1,
    "unbound": lambda x: torch.Tensor.to(x, torch.float64) + 1,
    "tensor": lambda x: x + torch.tensor([1.0, 2.0, 3.0]),
    "as_tensor": lambda x: x + torch.as_tensor(ARRAY),
    "from_numpy": lambda x: x + torch.from_numpy(ARRAY),
    "asarray": lambda x: x + torch.asarray([1.0, 2.0, 3.0]),
    "copy_": lambda x: x.clone().copy_(x) + 1,
    "index": lambda x: x[1:] + x[0],
    "module": torch.nn.Linear(3, 3),
}
SEVERAL_GRAPHS = {
    "item": lambda x: x * x.sum().item() + 1,
    "float": lambda x: x * float(x.sum()) + 1,
    "bool": lambda x: x + 1 if x.sum() > 0 else x - 1,
    "format": lambda x: (f"{x.sum():.3f}", x + 1),
    "mask": lambda x: x[x > 0] + 1,
    "tolist": lambda x: (x + 1, x.tolist(), x * 2),
}


class CountingBackend:
    """A backend of `torch.compile` that counts its graphs and runs them as they are."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, examples):
        self.graphs += 1
        return graph.forward


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x).to(torch.float64)


def double(x):
    return x * 2


def scaled(x, name):
    return x * len(name)


def read_between(x):
    total = (x * 2).sum().item()
    return x + total


@pytest.fixture(autouse=True)
def reset_compiler():
    torch._dynamo.reset()


@pytest.fixture
def seen():
    with watched() as seen:
        yield seen


def graphs_of(function, **options):
    """Return the number of graphs that two calls need; None if the function cannot be compiled."""
    torch._dynamo.reset()
    backend = CountingBackend()
    compiled = torch.compile(function, backend=backend, **options)
    try:
        compiled(torch.ones(3)), compiled(torch.ones(3))
    except torch._dynamo.exc.Unsupported:
        return None
    return backend.graphs


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_a_function_with_one_graph_keeps_one_graph(name):
    plain = graphs_of(ONE_GRAPH[name])
    with watched() as seen:
        assert graphs_of(ONE_GRAPH[name]) == plain
        whole = graphs_of(ONE_GRAPH[name], fullgraph=True)
        assert [event for event in seen.of(EventKind.UPLOAD, EventKind.DOWNLOAD) if event.nbytes] == []
    assert graphs_of(ONE_GRAPH[name], fullgraph=True) == whole


@pytest.mark.parametrize("name", SEVERAL_GRAPHS)
def test_a_function_with_graph_breaks_keeps_its_number_of_graphs(name):
    plain = graphs_of(SEVERAL_GRAPHS[name])
    with watched() as seen:
        assert graphs_of(SEVERAL_GRAPHS[name]) == plain
    functions = {event.detail["function"] for event in seen.of(EventKind.COMPILE)}
    assert all("lambda" in function or "resume" in function for function in functions)  # no hook is compiled


def test_a_read_between_two_graphs_is_recorded(seen):
    compiled = torch.compile(read_between, backend="eager")
    compiled(torch.ones(3)), compiled(torch.ones(3))
    reads = seen.of(EventKind.DOWNLOAD)
    assert [event.api for event in reads] == ["Tensor.item"] * 2
    assert seen.line(reads[0]).function == "read_between"


def test_hooked_methods_cause_no_recompilation_after_profiling():
    backend = CountingBackend()
    with watched():
        compiled = torch.compile(Network(), backend=backend)
        compiled(torch.ones(3))
    compiled(torch.ones(3))
    assert backend.graphs == 1


@with_reasons
def test_each_compilation_records_its_function_and_reason(seen):
    compiled = torch.compile(double, backend="eager", dynamic=False)
    compiled(torch.ones(3)), compiled(torch.ones(4)), compiled(torch.ones(4, dtype=torch.float64))
    first, shape, dtype = seen.of(EventKind.COMPILE)
    assert first.detail == {"function": "double", "reason": "first"}
    assert (shape.detail["reason"], dtype.detail["reason"]) == ("shape", "dtype")
    assert "expected 3, actual 4" in shape.detail["signature"]
    assert seen.line(first).text.startswith("compiled(torch.ones(3)), compiled(torch.ones(4))")


@with_reasons
def test_a_compilation_because_of_a_new_value_is_recorded_without_the_value(seen):
    compiled = torch.compile(scaled, backend="eager")
    compiled(torch.ones(3), "one"), compiled(torch.ones(3), "other")
    assert seen.of(EventKind.COMPILE)[1].detail == {"function": "scaled", "reason": "value"}


@with_backward
def test_the_compilation_of_a_backward_pass_is_recorded(seen):
    compiled = torch.compile(double, backend="aot_eager")
    compiled(torch.ones(3, requires_grad=True)).sum().backward()
    assert [event.detail["function"] for event in seen.of(EventKind.COMPILE)] == ["double", "backward"]


def test_each_call_of_a_compiled_function_is_a_run(seen):
    @torch.compile(backend="eager")
    def triple(x):
        return x * 3

    triple(torch.ones(3)), triple(torch.ones(3))
    (build,) = seen.of(EventKind.BUILD)
    runs = seen.of(EventKind.RUN)
    assert (build.api, build.detail["what"]) == ("torch.compile", "function")
    assert [event.api for event in runs] == ["compiled function"] * 2
    assert runs[0].detail["function"].endswith("triple")
    assert seen.line(runs[0]).text == "triple(torch.ones(3)), triple(torch.ones(3))"


def test_a_compiled_module_is_recorded_with_its_class(seen):
    network = Network()
    torch.compile(network, backend="eager")(torch.ones(3))
    network.compile(backend="eager")
    network(torch.ones(3))
    names = [event.detail["function"] for event in seen.of(EventKind.RUN)]
    assert names[0] == "Network"
    assert len(names) == 2
    assert seen.of(EventKind.COMPILE)[0].detail["function"] == "Network.forward"


def test_a_nested_compiled_function_is_part_of_the_outer_run(seen):
    inner = torch.compile(double, backend="eager")
    outer = torch.compile(lambda x: inner(x) + 1, backend="eager", fullgraph=True)
    assert outer(torch.ones(1)).item() == 3
    assert len(seen.of(EventKind.RUN)) == 1


def test_a_compiled_module_can_be_copied_and_pickled(seen):
    compiled = torch.compile(Network(), backend="eager")
    copied, read = copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))
    assert torch.equal(copied(torch.ones(3)), compiled(torch.ones(3)))
    assert torch.equal(read(torch.ones(3)), compiled(torch.ones(3)))


def with_graph_breaks(x):
    y = x * 2
    sys.stdout.write("")
    return y + 1 if y.sum() > 0 else y - 1


def test_a_graph_break_is_recorded_with_its_line(seen):
    compiled = torch.compile(with_graph_breaks, backend="eager")
    assert compiled(torch.ones(3)).tolist() == [3, 3, 3]
    assert compiled(torch.ones(3)).tolist() == [3, 3, 3]
    breaks = [event.detail["graph_break"] for event in seen.of(EventKind.COMPILE) if "graph_break" in event.detail]
    lines = {seen.ledger.lines.read()[index].text for index in breaks}
    assert lines == {'sys.stdout.write("")', "return y + 1 if y.sum() > 0 else y - 1"}


def test_a_function_in_one_graph_has_no_break(seen):
    torch.compile(double, backend="eager")(torch.ones(3))
    assert all("graph_break" not in event.detail for event in seen.of(EventKind.COMPILE))


def graphs_of_a_step():
    torch._dynamo.reset()
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    backend = CountingBackend()
    torch.compile(torch.optim.Adam([parameter]).step, backend=backend)()
    return backend.graphs


def test_a_compiled_optimizer_keeps_its_number_of_graphs():
    plain = graphs_of_a_step()
    with watched():
        assert graphs_of_a_step() == plain


def test_all_hooks_of_the_compiler_are_removed():
    compile_frame, wrap = convert_frame._compile, eval_frame.OptimizeContext.__call__
    with watched() as seen:
        compiled = torch.compile(double, backend="eager")
        compiled(torch.ones(3))
    compiled(torch.ones(3)), compiled(torch.ones(4))
    assert (len(seen.of(EventKind.RUN)), len(seen.of(EventKind.COMPILE))) == (1, 1)
    assert (convert_frame._compile, eval_frame.OptimizeContext.__call__) == (compile_frame, wrap)
    assert type(convert_frame._compile) is FunctionType
    assert callback_handler.start_callbacks == callback_handler.end_callbacks == []


def test_an_error_passes_and_the_next_call_is_recorded(seen):
    compiled = torch.compile(lambda x: x @ torch.ones(5, 5), backend="eager")
    with pytest.raises(RuntimeError):
        compiled(torch.ones(3, 3))
    torch.ones(()).item()
    assert seen.apis(EventKind.DOWNLOAD) == ["Tensor.item"]

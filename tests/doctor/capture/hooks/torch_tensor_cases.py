"""Each transfer of a tensor is one event with the details that rules need.

The device `meta` stands for an accelerator. `test_framework_cases.py` runs this file in the process of PyTorch, because
frameworks conflict in one process.
"""

import sys
from operator import methodcaller

import numpy as np
import pytest
import torch
from tests.doctor.capture.hooks.crossing_log import assert_listed
from tests.doctor.capture.hooks.torch_watched import watched
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.data import dataloader

from forebay.doctor.capture.hooks.torch import tensors as torch_tensors
from forebay.doctor.model.events import EventKind

READS = {
    "Tensor.item": methodcaller("item"),
    "Tensor.tolist": methodcaller("tolist"),
    "float(tensor)": float,
    "int(tensor)": int,
    "bool(tensor)": bool,
    "complex(tensor)": complex,
    "print(tensor)": str,
    "format(tensor)": "{:.3f}".format,
}
VIEWS = {"Tensor.numpy": methodcaller("numpy"), "Tensor.cpu": methodcaller("cpu"), "np.asarray(tensor)": np.asarray}


@pytest.fixture
def seen():
    with watched() as seen:
        yield seen


@pytest.fixture
def fake():
    """Make all tensors of a test fake: without memory, on any device."""
    with FakeTensorMode(shape_env=ShapeEnv()):
        yield


@pytest.mark.parametrize("api", READS)
def test_a_read_is_one_event_at_the_line_of_the_call(seen, api):
    READS[api](torch.tensor(2.0))
    (event,) = seen.of(EventKind.DOWNLOAD)
    assert (event.api, event.nbytes) == (api, 4)
    assert event.detail == {"device": "cpu", "dtype": "float32", "shape": []}
    assert seen.line(event).text == "READS[api](torch.tensor(2.0))"


@pytest.mark.parametrize("api", VIEWS)
def test_a_view_of_a_host_tensor_has_no_bytes(seen, api):
    VIEWS[api](torch.ones(100))
    assert (seen.one.api, seen.one.nbytes, seen.one.detail["copied"]) == (api, 0, False)


def test_using_a_tensor_as_an_index_is_a_read(seen):
    assert [5, 6, 7][torch.tensor(1)] == 6
    assert "index(tensor)" in seen.apis(EventKind.DOWNLOAD)


def test_printing_a_large_tensor_reads_only_the_printed_part(seen):
    str(torch.ones(1_000_000))
    assert seen.one.nbytes == 4000


def test_host_reads_inside_torch_are_not_recorded(seen):
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    torch.optim.Adam([parameter], foreach=False).step()
    assert seen.apis(EventKind.DOWNLOAD, EventKind.UPLOAD) == []


def test_moving_a_tensor_to_a_device_is_an_upload(seen):
    torch.zeros(16, 64).to("meta", non_blocking=True)
    event = seen.one
    assert (event.kind, event.api, event.nbytes) == (EventKind.UPLOAD, "Tensor.to", 4096)
    assert event.detail.pop("key").startswith("<f4(16, 64)")
    assert event.detail == {
        "device": "meta",
        "dtype": "float32",
        "shape": [16, 64],
        "from_dtype": "float32",
        "pinned": False,
        "non_blocking": True,
    }


@pytest.mark.parametrize(
    ("arguments", "non_blocking"),
    [(("meta",), False), (("meta", torch.float16, True), True), ((torch.empty(1, device="meta"), True), True)],
)
def test_non_blocking_is_read_from_any_argument_position(seen, arguments, non_blocking):
    torch.ones(4).to(*arguments)
    assert seen.one.detail["non_blocking"] is non_blocking


def test_a_cast_during_an_upload_counts_bytes_of_the_new_dtype(seen):
    torch.ones(1000, dtype=torch.float64).to("meta", torch.float32)
    assert (seen.one.nbytes, seen.one.detail["dtype"], seen.one.detail["from_dtype"]) == (4000, "float32", "float64")


@pytest.mark.parametrize("target", [torch.float64, "cpu", "cpu:0", torch.ones(1, dtype=torch.float16)])
def test_a_conversion_on_the_same_device_is_not_recorded(seen, target):
    torch.ones(4).to(target)
    assert seen.ledger.events == []


def test_equal_data_has_equal_keys_and_other_data_another_key(seen):
    data = np.random.default_rng(0).random(1000, dtype=np.float32)
    torch.tensor(data)
    torch.from_numpy(data.copy()).to("meta")
    torch.from_numpy(data + 1).to("meta")
    first, second, third = [event.detail["key"] for event in seen.of(EventKind.UPLOAD) if event.nbytes]
    assert first == second != third


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(100), torch.ones(64, 64).T, torch.ones(4096).to_sparse()],
    ids=["small", "not contiguous", "sparse"],
)
def test_a_small_or_noncontiguous_or_sparse_tensor_has_no_key(seen, tensor):
    tensor.to("meta")
    assert "key" not in seen.one.detail


def test_a_dtype_that_numpy_lacks_has_a_key(seen):
    torch.ones(1000, dtype=torch.bfloat16).to("meta")
    # NumPy knows bfloat16 ("|V2") once some library has imported ml_dtypes.
    assert seen.one.detail["key"].startswith(("<u2(1000,)", "|V2(1000,)"))


def test_a_tensor_that_shares_memory_with_numpy_is_no_copy(seen):
    torch.from_numpy(np.zeros(1000))
    torch.as_tensor(np.zeros(1000))
    assert [(event.nbytes, event.detail["copied"]) for event in seen.of(EventKind.UPLOAD)] == [(0, False), (0, False)]


def test_a_conversion_records_the_original_type(seen):
    torch.tensor(np.zeros(1000), dtype=torch.float32)
    torch.as_tensor(np.zeros(1000), dtype=torch.float32)
    torch.tensor([1.0, 2.0])
    torch.asarray((1, 2, 3))
    torch.tensor(data=3.5)
    conversions = [(event.nbytes, event.detail["from_dtype"]) for event in seen.of(EventKind.UPLOAD)]
    assert conversions == [(4000, "float64"), (4000, "float64"), (8, "list"), (24, "tuple"), (4, "float")]


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
def test_a_conversion_of_a_list_of_arrays_counts_its_pieces(seen):
    torch.tensor([np.zeros(10)] * 3)
    torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    pieces = [(event.detail.get("pieces"), event.detail["from_dtype"]) for event in seen.of(EventKind.UPLOAD)]
    assert pieces == [(3, "float64"), (None, "list")]


def test_a_conversion_to_a_device_is_not_pinned(seen):
    torch.tensor(np.ones(1000, dtype="float32"), device="meta")
    assert (seen.one.detail["device"], seen.one.detail["pinned"]) == ("meta", False)
    assert "key" in seen.one.detail


def test_copying_into_a_device_tensor_is_an_upload(seen):
    torch.empty(1000, device="meta").copy_(torch.ones(1000), non_blocking=True)
    assert (seen.one.api, seen.one.nbytes, seen.one.detail["non_blocking"]) == ("Tensor.copy_", 4000, True)


def test_assigning_to_a_part_of_a_device_tensor_is_an_upload(seen):
    torch.empty(8, 100, device="meta")[0] = torch.ones(100)
    assert (seen.one.kind, seen.one.api, seen.one.nbytes) == (EventKind.UPLOAD, "tensor[index] = value", 400)


def test_assignment_and_indexing_on_the_host_are_not_recorded(seen):
    tensor = torch.zeros(8, 100)
    tensor[0], tensor[1, :], tensor[2:4] = 1.0, torch.ones(100), tensor[4:6]
    tensor[tensor > 0]
    assert seen.ledger.events == []


def test_a_copy_from_a_device_to_the_host_is_a_download(seen, fake):
    tensor = torch.empty(1000, device="cuda")
    tensor.cpu()
    tensor.to("cpu", non_blocking=True)
    torch.empty(1000).copy_(tensor)
    downloads = seen.of(EventKind.DOWNLOAD)
    assert [event.api for event in downloads] == ["Tensor.cpu", "Tensor.to", "Tensor.copy_"]
    assert [event.nbytes for event in downloads] == [4000] * 3
    assert {event.detail["device"] for event in downloads} == {"cuda:0"}
    assert downloads[1].detail["non_blocking"] is True


def test_a_copy_between_devices_is_a_move(seen, fake):
    torch.empty(1000, device="cuda:0").to("cuda:1")
    assert (seen.one.kind, seen.one.nbytes) == (EventKind.MOVE, 4000)
    assert (seen.one.detail["source"], seen.one.detail["target"]) == ("cuda:0", "cuda:1")


def test_a_tensor_without_dimensions_is_no_sequence(seen):
    assert torch.tensor([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1.0, 2.0]
    assert "__getitem__" not in vars(torch.Tensor)


def test_a_call_with_a_data_dependent_shape_waits_for_the_device(fake):
    kind, nbytes, detail = torch_tensors.describe_wait(None, (), {"input": torch.empty(1000, device="cuda")})
    assert (kind, nbytes, detail["shape"]) == (EventKind.DOWNLOAD, 8, [1000])


def test_the_memory_of_a_fake_tensor_is_not_read(seen, fake):
    torch.empty(1000).to("meta")
    assert "key" not in seen.one.detail
    assert "pinned" not in seen.one.detail


def test_a_tensor_with_a_symbolic_shape_is_not_recorded(seen, fake):
    torch.empty(1000).nonzero().to("meta")
    assert seen.ledger.events == []


def test_moving_a_module_is_a_build_and_not_an_upload(seen):
    torch.nn.Linear(100, 100).to("meta")
    assert (seen.one.kind, seen.one.api) == (EventKind.BUILD, "Module.to")
    assert seen.one.nbytes == 0


def test_an_explicit_synchronization_is_recorded(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    with watched() as seen:
        torch.cuda.synchronize()
    assert (seen.one.kind, seen.one.api) == (EventKind.SYNC, "torch.cuda.synchronize")


def test_a_replayed_graph_is_a_run(monkeypatch):
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: None)
    with watched() as seen:
        torch.cuda.CUDAGraph.replay(None)
    assert (seen.one.kind, seen.one.api) == (EventKind.RUN, "CUDAGraph.replay")


def test_an_error_in_a_hook_is_noted_and_the_call_succeeds(seen, monkeypatch):
    monkeypatch.setattr(torch_tensors, "fingerprint_of_tensor", lambda tensor: 1 / 0)
    assert torch.ones(1000).to("meta").device.type == "meta"
    (note,) = seen.ledger.notes
    assert note.startswith("Tensor.to is recorded only in part: ZeroDivisionError in torch_tensor_cases.py:")


def calls_made_by(work):
    """Return how many Python functions `work` calls. These calls take most of the time of a hook."""
    calls = []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        work()
    finally:
        sys.setprofile(None)
    return len(calls) - 1  # without the call of `work`


def test_a_hook_makes_few_python_calls(seen):
    tensor, read = torch.ones(4, 4), torch.ones(()).item
    read()
    assert calls_made_by(lambda: tensor[1:, 0]) == 0
    assert calls_made_by(lambda: tensor.to(torch.float32)) <= 7
    assert calls_made_by(lambda: tensor.copy_(tensor)) <= 8
    assert calls_made_by(lambda: read()) <= 20


def test_a_hook_kept_after_profiling_only_calls_its_original():
    with watched():
        kept = torch.tensor
    assert calls_made_by(lambda: kept(1.0)) == 1


def test_a_version_with_unknown_loaders_is_still_profiled(monkeypatch):
    monkeypatch.delattr(dataloader, "_BaseDataLoaderIter")
    with watched() as seen:
        torch.ones(()).item()
    assert seen.apis(EventKind.DOWNLOAD) == ["Tensor.item"]
    assert len(seen.ledger.notes) == 1
    assert seen.ledger.notes[0].startswith("DataLoader is recorded only in part: AttributeError")


def test_all_hooks_match_the_installed_version(seen):
    assert seen.ledger.notes == []


def test_a_moved_model_has_its_bytes_and_its_devices(seen):
    torch.nn.Linear(10, 10).to("meta")
    detail = {"what": "Module", "function": "Linear", "device": "meta", "source": "cpu", "moved_nbytes": 440}
    assert seen.one.detail == detail


def test_a_model_that_keeps_its_device_is_not_moved(seen):
    torch.nn.Linear(10, 10).to(torch.float64)
    assert seen.one.detail == {"what": "Module", "function": "Linear", "device": "cpu"}


def test_a_moved_model_with_unknown_sizes_has_zero_bytes(seen):
    torch.nn.LazyLinear(10).to("meta")
    assert seen.one.detail["moved_nbytes"] == 0


def test_a_script_without_a_loop_has_a_list_of_its_crossings():
    data, model = np.ones((64, 64), np.float32), torch.nn.Linear(64, 64)

    def run():
        tensor = torch.tensor(data)
        tensor.to("meta")
        model.to("meta")
        if tensor.any():
            tensor.sum().item()
        return tensor.numpy()

    assert_listed(
        run,
        [
            ("tensor = torch.tensor(data)", "torch.tensor", "upload", "explicit"),
            ('tensor.to("meta")', "Tensor.to", "upload", "explicit"),
            ('model.to("meta")', "Module.to", "upload", "explicit"),
            ("if tensor.any():", "bool(tensor)", "download", "implied"),
            ("tensor.sum().item()", "Tensor.item", "download", "explicit"),
            ("return tensor.numpy()", "Tensor.numpy", "download", "explicit"),
        ],
    )

"""Tensors: each crossing and each read is one event, with what rules ask of it. `meta` stands for an accelerator."""

import sys
from operator import methodcaller

import numpy as np
import pytest
import torch
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
    """Tensors that say they lie on a GPU."""
    with FakeTensorMode(shape_env=ShapeEnv()):
        yield


@pytest.mark.parametrize("api", READS)
def test_a_read_is_one_event_of_the_line_that_reads(seen, api):
    READS[api](torch.tensor(2.0))
    (event,) = seen.of(EventKind.DOWNLOAD)
    assert (event.api, event.nbytes) == (api, 4)
    assert event.detail == {"device": "cpu", "dtype": "float32", "shape": []}
    assert seen.line(event).text == "READS[api](torch.tensor(2.0))"


@pytest.mark.parametrize("api", VIEWS)
def test_a_view_of_what_lies_on_the_host_has_no_bytes(seen, api):
    VIEWS[api](torch.ones(100))
    assert (seen.one.api, seen.one.nbytes, seen.one.detail["copied"]) == (api, 0, False)


def test_an_index_made_of_a_tensor_is_a_read(seen):
    assert [5, 6, 7][torch.tensor(1)] == 6
    assert "index(tensor)" in seen.apis(EventKind.DOWNLOAD)


def test_of_a_large_tensor_only_what_is_shown_comes_back(seen):
    str(torch.ones(1_000_000))
    assert seen.one.nbytes == 4000


def test_what_torch_reads_on_the_host_for_itself_is_nobodys(seen):
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    torch.optim.Adam([parameter], foreach=False).step()
    assert seen.apis(EventKind.DOWNLOAD, EventKind.UPLOAD) == []


def test_a_tensor_that_crosses_is_an_upload(seen):
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
def test_non_blocking_is_found_wherever_it_stands(seen, arguments, non_blocking):
    torch.ones(4).to(*arguments)
    assert seen.one.detail["non_blocking"] is non_blocking


def test_a_cast_on_the_way_crosses_as_the_new_type(seen):
    torch.ones(1000, dtype=torch.float64).to("meta", torch.float32)
    assert (seen.one.nbytes, seen.one.detail["dtype"], seen.one.detail["from_dtype"]) == (4000, "float32", "float64")


@pytest.mark.parametrize("target", [torch.float64, "cpu", "cpu:0", torch.ones(1, dtype=torch.float16)])
def test_what_stays_on_its_device_is_no_crossing(seen, target):
    torch.ones(4).to(target)
    assert seen.ledger.events == []


def test_equal_data_has_one_key_and_other_data_another(seen):
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
def test_what_cannot_be_sampled_cheaply_has_no_key(seen, tensor):
    tensor.to("meta")
    assert "key" not in seen.one.detail


def test_a_type_that_numpy_lacks_has_a_key_too(seen):
    torch.ones(1000, dtype=torch.bfloat16).to("meta")
    # NumPy knows bfloat16 ("|V2") once some library has imported ml_dtypes.
    assert seen.one.detail["key"].startswith(("<u2(1000,)", "|V2(1000,)"))


def test_numpys_memory_as_a_tensor_is_no_copy(seen):
    torch.from_numpy(np.zeros(1000))
    torch.as_tensor(np.zeros(1000))
    assert [(event.nbytes, event.detail["copied"]) for event in seen.of(EventKind.UPLOAD)] == [(0, False), (0, False)]


def test_a_conversion_says_what_it_was_made_of(seen):
    torch.tensor(np.zeros(1000), dtype=torch.float32)
    torch.as_tensor(np.zeros(1000), dtype=torch.float32)
    torch.tensor([1.0, 2.0])
    torch.asarray((1, 2, 3))
    torch.tensor(data=3.5)
    found = [(event.nbytes, event.detail["from_dtype"]) for event in seen.of(EventKind.UPLOAD)]
    assert found == [(4000, "float64"), (4000, "float64"), (8, "list"), (24, "tuple"), (4, "float")]


def test_a_conversion_that_crosses_is_not_from_locked_memory(seen):
    torch.tensor(np.ones(1000, dtype="float32"), device="meta")
    assert (seen.one.detail["device"], seen.one.detail["pinned"]) == ("meta", False)
    assert "key" in seen.one.detail


def test_copying_into_a_tensor_of_the_device_is_an_upload(seen):
    torch.empty(1000, device="meta").copy_(torch.ones(1000), non_blocking=True)
    assert (seen.one.api, seen.one.nbytes, seen.one.detail["non_blocking"]) == ("Tensor.copy_", 4000, True)


def test_assigning_to_a_part_of_it_is_an_upload(seen):
    torch.empty(8, 100, device="meta")[0] = torch.ones(100)
    assert (seen.one.kind, seen.one.api, seen.one.nbytes) == (EventKind.UPLOAD, "tensor[index] = value", 400)


def test_assigning_and_indexing_on_the_host_is_nothing(seen):
    tensor = torch.zeros(8, 100)
    tensor[0], tensor[1, :], tensor[2:4] = 1.0, torch.ones(100), tensor[4:6]
    tensor[tensor > 0]
    assert seen.ledger.events == []


def test_what_comes_back_from_a_device_is_a_download(seen, fake):
    tensor = torch.empty(1000, device="cuda")
    tensor.cpu()
    tensor.to("cpu", non_blocking=True)
    torch.empty(1000).copy_(tensor)
    downloads = seen.of(EventKind.DOWNLOAD)
    assert [event.api for event in downloads] == ["Tensor.cpu", "Tensor.to", "Tensor.copy_"]
    assert [event.nbytes for event in downloads] == [4000] * 3
    assert {event.detail["device"] for event in downloads} == {"cuda:0"}
    assert downloads[1].detail["non_blocking"] is True


def test_from_device_to_device_is_a_move(seen, fake):
    torch.empty(1000, device="cuda:0").to("cuda:1")
    assert (seen.one.kind, seen.one.nbytes) == (EventKind.MOVE, 4000)
    assert (seen.one.detail["source"], seen.one.detail["target"]) == ("cuda:0", "cuda:1")


def test_a_mask_on_the_device_is_waited_for(fake):
    tensor = torch.empty(1000, device="cuda")
    kind, nbytes, detail = torch_tensors.describe_index(None, (tensor, (tensor > 0, slice(None))), {})
    assert (kind, nbytes, detail["device"]) == (EventKind.DOWNLOAD, 8, "cuda:0")


def test_a_shape_that_depends_on_values_is_waited_for(fake):
    kind, nbytes, detail = torch_tensors.describe_wait(None, (), {"input": torch.empty(1000, device="cuda")})
    assert (kind, nbytes, detail["shape"]) == (EventKind.DOWNLOAD, 8, [1000])


def test_an_index_on_the_host_is_uploaded(fake):
    index = torch.zeros(10, dtype=torch.int64)
    kind, nbytes, detail = torch_tensors.describe_index(None, (torch.empty(1000, device="cuda"), index), {})
    assert (kind, nbytes, detail["device"]) == (EventKind.UPLOAD, 80, "cuda:0")


def test_a_fake_tensor_is_not_asked_for_memory(seen, fake):
    torch.empty(1000).to("meta")
    assert "key" not in seen.one.detail
    assert "pinned" not in seen.one.detail


def test_a_shape_that_is_a_symbol_is_left_alone(seen, fake):
    torch.empty(1000).nonzero().to("meta")
    assert seen.ledger.events == []


def test_a_model_that_is_put_somewhere_is_built_not_uploaded(seen):
    torch.nn.Linear(100, 100).to("meta")
    assert (seen.one.kind, seen.one.api) == (EventKind.BUILD, "Module.to")
    assert seen.one.detail == {"what": "Module", "function": "Linear", "device": "meta"}


def test_a_wait_that_is_asked_for_is_seen(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    with watched() as seen:
        torch.cuda.synchronize()
    assert (seen.one.kind, seen.one.api) == (EventKind.SYNC, "torch.cuda.synchronize")


def test_a_replayed_graph_is_a_run(monkeypatch):
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: None)
    with watched() as seen:
        torch.cuda.CUDAGraph.replay(None)
    assert (seen.one.kind, seen.one.api) == (EventKind.RUN, "CUDAGraph.replay")


def test_trouble_of_ours_is_a_note_and_not_the_users(seen, monkeypatch):
    monkeypatch.setattr(torch_tensors, "fingerprint_of_tensor", lambda tensor: 1 / 0)
    assert torch.ones(1000).to("meta").device.type == "meta"
    assert seen.ledger.notes == ["Tensor.to is recorded only in part: ZeroDivisionError: division by zero"]


def calls_made_by(work):
    """Calls of Python functions, which is what a hook's time goes on."""
    calls = []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        work()
    finally:
        sys.setprofile(None)
    return len(calls) - 1  # its own


def test_a_hook_is_a_handful_of_calls(seen):
    tensor, read = torch.ones(4, 4), torch.ones(()).item
    read()
    assert calls_made_by(lambda: tensor[1]) == 2
    assert calls_made_by(lambda: tensor[1:, 0]) == 2
    assert calls_made_by(lambda: tensor.to(torch.float32)) <= 7
    assert calls_made_by(lambda: tensor.copy_(tensor)) <= 8
    assert calls_made_by(lambda: read()) <= 20


def test_a_hook_that_was_kept_does_nothing_but_call_afterwards():
    with watched():
        kept = torch.tensor
    assert calls_made_by(lambda: kept(1.0)) == 1


def test_a_version_without_loaders_we_know_is_still_watched(monkeypatch):
    monkeypatch.delattr(dataloader, "_BaseDataLoaderIter")
    with watched() as seen:
        torch.ones(()).item()
    assert seen.apis(EventKind.DOWNLOAD) == ["Tensor.item"]
    assert len(seen.ledger.notes) == 1
    assert seen.ledger.notes[0].startswith("DataLoader is recorded only in part: AttributeError")


def test_nothing_is_missing_in_this_version(seen):
    assert seen.ledger.notes == []

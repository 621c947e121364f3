"""The target of a feed: a usable GPU, or the CPU with the reason."""

from types import SimpleNamespace

import pytest

from forebay.adapters.handoff.numpy import NumpyHandOff
from forebay.core import registry
from forebay.engines.host import HostEngine
from forebay.errors import DeviceError, FrameworkError
from forebay.pipeline.target import resolve_target


class Framework(NumpyHandOff):
    """The hand-off of a framework that sees four GPUs and uses the third by default."""

    name = "framework"

    def for_device(self, index):
        index = 2 if index is None else index
        if index > 3:
            raise DeviceError(f"Framework sees no device cuda:{index}: it sees 4 GPUs. Pass device='cpu'.")
        return SimpleNamespace(name="framework", index=index, available=lambda free, total: free + total)


class Gpu:
    """Replaces the CUDA engine in these tests. It has no device."""

    def __init__(self, device_handoff):
        self.device_handoff, self.device = device_handoff, SimpleNamespace(memory=lambda: (30, 12))

    def open_slot(self, nbytes, *, shared=False):
        raise AssertionError("no test opens a slot")


def without_bindings(device_handoff):
    raise ModuleNotFoundError("No module named 'cuda'", name="cuda")


def without_driver(device_handoff):
    raise DeviceError("CUDA failed starting: no driver (CUDA_ERROR_NO_DEVICE).")


@pytest.fixture
def framework(monkeypatch):
    """Register `Framework` under the name "framework"."""
    known = {"framework": Framework, "numpy": NumpyHandOff}
    monkeypatch.setattr(registry, "load_hand_off", known.__getitem__)


@pytest.fixture
def cuda(framework, monkeypatch, request):
    """Replace the CUDA engine by `Gpu`, or by the parameter of the test."""
    engines = {"cpu": HostEngine, "cuda": getattr(request, "param", Gpu)}
    monkeypatch.setattr(registry, "load_engine", engines.__getitem__)


@pytest.mark.parametrize(("device", "to"), [("cpu", "framework"), ("cpu", "numpy"), ("auto", "numpy")])
def test_a_requested_cpu_needs_no_reason(cuda, device, to):
    target = resolve_target(device, to)
    assert isinstance(target.engine, HostEngine)
    assert target.hand_off.name == to
    assert (target.device_handoff, target.available_nbytes, target.decisions) == (None, 0, ())


def test_auto_selects_the_current_gpu_of_the_framework(cuda):
    target = resolve_target("auto", "framework")
    assert isinstance(target.engine, Gpu)
    assert target.device_handoff is target.hand_off is target.engine.device_handoff
    assert (target.device_handoff.index, target.available_nbytes, target.decisions) == (2, 42, ())


@pytest.mark.parametrize(("device", "index"), [("cuda", 0), ("gpu", 0), ("cuda:0", 0), ("CUDA:1", 1), ("gpu:3", 3)])
def test_a_gpu_is_found_by_its_name(cuda, device, index):
    assert resolve_target(device, "framework").device_handoff.index == index


@pytest.mark.parametrize("device", ["tpu", "", "cuda:", "mps", "cuda:x", "cuda:-1", "cuda1", "cuda:0:0", " cuda"])
def test_unknown_devices_are_refused_with_the_known_devices(cuda, device):
    with pytest.raises(DeviceError, match="is unknown: choose 'auto', 'cpu', 'cuda' or 'cuda:1'") as refused:
        resolve_target(device, "framework")
    assert repr(device) in str(refused.value)


def test_a_gpu_that_the_framework_does_not_see_is_refused(cuda):
    with pytest.raises(DeviceError, match="sees no device cuda:4"):
        resolve_target("cuda:4", "framework")


def test_numpy_with_a_device_is_refused_with_a_remedy():
    with pytest.raises(DeviceError, match=r"Use feed\('cupy'\), or omit device="):
        resolve_target("cuda", "numpy")


@pytest.mark.parametrize("cuda", [without_bindings], indirect=True)
def test_a_requested_gpu_needs_the_bindings_and_the_error_names_the_package(cuda):
    with pytest.raises(DeviceError, match=r"'cuda' is missing\. Run pip install 'forebay\[cu13\]'") as refused:
        resolve_target("cuda", "framework")
    assert isinstance(refused.value.__cause__, ModuleNotFoundError)


@pytest.mark.parametrize(
    ("cuda", "why"),
    [
        (without_bindings, "no GPU to feed: feeding a GPU needs NVIDIA's Python bindings, and 'cuda' is missing"),
        (without_driver, "no GPU to feed: CUDA failed starting"),
    ],
    indirect=["cuda"],
)
def test_auto_selects_the_cpu_with_a_reason_if_the_gpu_is_unusable(cuda, why):
    target = resolve_target("auto", "framework")
    assert isinstance(target.engine, HostEngine)
    assert target.device_handoff is None
    assert [(note.name, note.choice, note.why) for note in target.decisions] == [("device", "cpu", why)]


def test_auto_selects_the_cpu_for_a_framework_without_gpus(cuda, monkeypatch):
    monkeypatch.setattr(Framework, "for_device", lambda hand_off, index: NumpyHandOff.for_device(hand_off, index))
    target = resolve_target("auto", "framework")
    assert isinstance(target.engine, HostEngine)
    assert [note.why for note in target.decisions] == ["no GPU to feed: NumPy has no arrays on devices"]


def test_an_unknown_framework_is_not_reported_as_a_missing_gpu():
    with pytest.raises(FrameworkError, match="cannot feed 'nothing'"):
        resolve_target("auto", "nothing")


def test_an_engine_of_the_user_is_used_unchanged(framework):
    engine = HostEngine()
    target = resolve_target(engine, "framework")
    assert target.engine is engine
    assert isinstance(target.hand_off, Framework)
    assert target.device_handoff is None


def test_an_engine_for_a_device_brings_its_own_hand_off(framework):
    device_handoff = Framework().for_device(2)
    target = resolve_target(Gpu(device_handoff), "framework")
    assert target.device_handoff is target.hand_off is device_handoff
    assert target.available_nbytes == 42

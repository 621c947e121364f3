"""Errors of the registry: a missing or old module says what to install, and unknown frameworks are refused."""

import sys
from types import ModuleType

import pytest

import forebay as fb
from forebay.core import registry
from forebay.errors import FrameworkError


@pytest.fixture
def install(monkeypatch):
    """Return a function that replaces a module by an empty module of another version."""

    def replace(name, version):
        module = ModuleType(name)
        module.__version__ = version
        monkeypatch.setitem(sys.modules, name, module)

    return replace


@pytest.mark.parametrize(("name", "version"), [("keras", "3.6.0"), ("tensorflow", "2.17.1"), ("torch", "2.3.1+cpu")])
def test_a_framework_below_the_minimum_is_refused(install, name, version):
    install(name, version)
    load = registry.load_adapter if name == "keras" else registry.load_hand_off
    with pytest.raises(FrameworkError, match=rf"{name} {version[:5]}.* is too old. Forebay needs .* Run: pip"):
        load(name)


@pytest.mark.parametrize("device", ["auto", ["cpu", "cpu"]])
def test_a_list_of_frameworks_is_refused(device):
    with pytest.raises(FrameworkError, match=r"cannot feed \['numpy'\]. Choose one of 'numpy'"):
        fb.from_arrays([1, 2]).batch(2).feed(["numpy"], device=device)


def test_versions_are_compared_as_numbers():
    assert registry._release("3.9.2") < registry._release("3.12")
    assert registry._release("2.13.0+cpu") > registry._release("2.4")
    assert registry._release("3.12.0rc1") >= registry._release("3.12")


def test_a_file_library_without_a_needed_part_is_too_old(monkeypatch):
    monkeypatch.setattr(registry, "load", lambda target: fail(ModuleNotFoundError("no part", name="zarr.abc")))
    with pytest.raises(FrameworkError, match=r"zarr, which is too old or damaged. Run: pip install --upgrade"):
        registry.load_source_opener(".zarr")


def test_a_missing_file_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(registry, "load", lambda target: fail(ModuleNotFoundError("no module", name="h5py")))
    with pytest.raises(FrameworkError, match=r"h5py, which is not installed. Run: .*'forebay\[hdf5\]'"):
        registry.load_source_opener(".h5")


def test_cupy_is_named_with_the_package_of_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(FrameworkError, match=r"pip install cupy-cuda12x \(or cupy-cuda13x for CUDA 13\)"):
        registry.load_hand_off("cupy")


def fail(error):
    raise error

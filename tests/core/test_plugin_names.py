"""Engines and hand-offs written for Forebay 0.1 still work, with a DeprecationWarning."""

import mmap
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import forebay as fb
from forebay.core import registry
from forebay.core.plugin_names import adapt_engine, adapt_hand_off
from forebay.errors import DeviceError
from forebay.testing import EngineTests, SimulatedEngine

HAND_OFF_OF_0_1 = """
from forebay.errors import DeviceError

class OldDeviceHandOff:
    name, index, waits_on_import = "lists", 0, True

    def __init__(self, index):
        self.index = index

    def held_dtype(self, dtype):
        return dtype

    def keep_for(self, owner):
        return owner

class OldHandOff:
    name = "lists"

    def held_dtype(self, dtype):
        return dtype

    def check(self, specs, names):
        pass

    def hand_off(self, roots):
        return [root.tolist() for root in roots]

    def on_device(self, index):
        if index is None:
            raise DeviceError("lists are on no device")
        return OldDeviceHandOff(index)
"""


@pytest.fixture
def _plugin(tmp_path: Path, monkeypatch):
    """An installed package with a 0.1 hand-off behind the entry point `forebay.handoff`."""
    info = tmp_path / "old_plugin-1.0.dist-info"
    info.mkdir()
    (tmp_path / "old_plugin.py").write_text(HAND_OFF_OF_0_1)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: old-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[forebay.handoff]\nlists = old_plugin:OldHandOff\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("old_plugin", None)


@pytest.mark.usefixtures("_plugin")
def test_a_hand_off_of_0_1_feeds_and_warns():
    with (
        pytest.warns(DeprecationWarning, match="OldHandOff uses names of Forebay 0.1: held_dtype is now"),
        fb.from_arrays(np.arange(5)).batch(2).feed("lists", device="cpu") as feed,
    ):
        assert list(feed) == [[0, 1], [2, 3], [4]]


@pytest.mark.usefixtures("_plugin")
def test_the_device_hand_off_of_a_0_1_hand_off_has_the_current_names():
    with pytest.warns(DeprecationWarning, match="on_device is now for_device"):
        hand_off = registry.load_hand_off("lists")()
    with pytest.warns(DeprecationWarning, match="keep_for is now record_stream"):
        device_handoff = hand_off.for_device(3)
    assert device_handoff.index == 3
    assert device_handoff.syncs_on_import
    assert device_handoff.record_stream("owner") == "owner"
    assert device_handoff.framework_dtype("f4") == "f4"
    with pytest.raises(DeviceError, match="no device"):
        hand_off.for_device(None)


@pytest.mark.usefixtures("_plugin")
def test_each_old_class_warns_once():
    with pytest.warns(DeprecationWarning, match="OldHandOff"):
        registry.load_hand_off("lists")()
    registry.load_hand_off("lists")()  # a second warning would fail the test


class OldMemory:
    """Slot memory with the names of 0.1."""

    block = None

    def __init__(self, nbytes):
        self.host = mmap.mmap(-1, nbytes)

    def root(self, layout, leaf, batch):
        return layout.view(self.host, leaf, batch=batch)

    def counted(self, root):
        return root


def old_engine_class():
    """Return a new engine class with the names of 0.1; adapting it changes the class."""

    class OldEngine:
        name, alignment = "old", 64

        def __init__(self):
            self.far = False
            self.calls = set()

        def attend(self):
            self.calls.add("attend")

        def visit(self):
            self.calls.add("visit")
            return nullcontext()

        def open_slot(self, nbytes, *, shared=False):
            return OldMemory(nbytes)

        def await_host(self, memory):
            self.calls.add("await_host")

        def send(self, memory, parts=None):
            pass

        def await_arrival(self, memory):
            pass

        def lend(self, memory):
            self.calls.add("lend")

        def reclaim(self, memories):
            return True

        def close_slot(self, memory):
            pass

        def close(self):
            pass

    return OldEngine


@pytest.mark.filterwarnings("ignore:.*uses names of Forebay 0.1:DeprecationWarning")
class TestAnEngineOf0Dot1(EngineTests):
    engine_class = old_engine_class()

    def make_engine(self):
        return self.engine_class()


@pytest.mark.filterwarnings("ignore:OldMemory uses names of Forebay 0.1:DeprecationWarning")
def test_an_engine_of_0_1_warns_and_its_methods_are_called():
    engine = old_engine_class()()
    with pytest.warns(DeprecationWarning, match=r"OldEngine uses names of Forebay 0\.1: far is now is_device"):
        feed = fb.from_arrays(np.arange(100)).batch(10).feed("numpy", device=engine)
    with feed:
        assert sum(len(batch) for batch in feed) == 100
    assert {"attend", "visit", "await_host"} <= engine.calls
    assert engine.device_handoff is None


def test_a_subclass_that_overrides_an_old_name_is_called():
    class Recording(SimulatedEngine):
        handed_out = 0

        def lend(self, memory):
            Recording.handed_out += 1
            with pytest.warns(DeprecationWarning, match="lend is now hand_out"):
                super().lend(memory)

    with pytest.warns(DeprecationWarning, match="lend is now hand_out"):
        feed = fb.from_arrays(np.arange(100)).batch(10).feed("numpy", device=Recording())
    with feed:
        list(feed)
    assert Recording.handed_out == 10


def test_current_engines_and_hand_offs_are_returned_unchanged():
    engine, hand_off = SimulatedEngine(), registry.load_hand_off("numpy")()
    assert adapt_engine(engine) is engine
    assert adapt_hand_off(hand_off) is hand_off


def test_old_names_of_the_simulated_engine_warn():
    engine = SimulatedEngine()
    memory = engine.open_slot(64)
    engine.send(memory)
    engine.await_arrival(memory)
    for old, arguments in (("attend", ()), ("visit", ()), ("await_host", (memory,)), ("lend", (memory,))):
        with pytest.warns(DeprecationWarning, match=f"SimulatedEngine uses names of Forebay 0.1: {old} is now"):
            getattr(engine, old)(*arguments)
    with pytest.warns(DeprecationWarning, match="counted is now lease_object"):
        assert memory.counted("root") == "root"

"""The public surface of 0.1 still exists: names, keywords, errors, commands, flags. Additions are allowed."""

import json
import re
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.compat import surface
from tests.compat.commands import python

import forebay as fb
from forebay.errors import FrameworkError, SourceError
from forebay.testing import EngineTests, SimulatedEngine, SourceTests

OLD = json.loads((Path(__file__).parent / "v0_1" / "surface.json").read_text())
KINDS = {  # the kinds that a parameter may change to without breaking a call
    "KEYWORD_ONLY": ("KEYWORD_ONLY", "POSITIONAL_OR_KEYWORD"),
    "POSITIONAL_OR_KEYWORD": ("POSITIONAL_OR_KEYWORD",),
    "POSITIONAL_ONLY": ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD"),
    "VAR_KEYWORD": ("VAR_KEYWORD",),
    "VAR_POSITIONAL": ("VAR_POSITIONAL",),
}


@pytest.fixture(scope="module")
def now() -> Any:
    return json.loads(json.dumps(surface.light_surface()))


@pytest.fixture(scope="module")
def now_with_frameworks() -> Any:
    done = python("-m", "tests.compat.surface", KERAS_BACKEND="jax")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return surface.help_pages([command.split() for command in OLD["commands"]])


def assert_callable_as_before(new: list[Any], old: list[Any]) -> None:
    """Assert that every call that was valid is still valid and has the same meaning."""
    found = {name: (place, kind, default) for place, (name, kind, *default) in enumerate(new)}
    for place, (name, kind, *default) in enumerate(old):
        assert name in found, f"{name!r} is gone"
        now_at, now_kind, now_default = found[name]
        assert now_kind in KINDS[kind], f"{name!r} is {now_kind} and was {kind}"
        assert kind == "KEYWORD_ONLY" or kind.startswith("VAR") or now_at == place, f"{name!r} has another position"
        assert not default or now_default == default, f"{name!r} is {now_default} by default and was {default}"
    known = {name for name, *_ in old}
    needed = [name for name, kind, *default in new if name not in known and not default and not kind.startswith("VAR")]
    assert not needed, f"a call must now pass {needed}"


def assert_attributes(new: dict[str, Any], old: dict[str, Any], name: str) -> None:
    """Assert that every attribute is still an attribute or a method."""
    methods = {key.removeprefix(f"{name}.") for key in new["signatures"] if key.startswith(f"{name}.")}
    assert not set(old["attributes"][name]) - set(new["attributes"][name]) - methods


# Python


@pytest.mark.parametrize("module", OLD["light"]["names"])
def test_every_public_name_exists(module: str, now: Any) -> None:
    names = set(OLD["light"]["names"][module])
    assert names <= set(now["names"][module])
    needs_keras = {"KerasWatch"}
    assert all(hasattr(import_module(module), name) for name in names - needs_keras)


@pytest.mark.parametrize("name", OLD["light"]["signatures"])
def test_every_public_function_accepts_its_old_arguments(name: str, now: Any) -> None:
    assert name in now["signatures"], f"{name} is gone"
    assert_callable_as_before(now["signatures"][name], OLD["light"]["signatures"][name])


@pytest.mark.parametrize("name", OLD["light"]["attributes"])
def test_every_public_class_has_its_old_attributes(name: str, now: Any) -> None:
    assert_attributes(now, OLD["light"], name)


@pytest.mark.parametrize("name", OLD["light"]["errors"])
def test_every_error_has_its_old_base_classes(name: str, now: Any) -> None:
    assert set(OLD["light"]["errors"][name]) <= set(now["errors"][name])


@pytest.mark.long
def test_the_surface_for_keras_and_ray_exists_and_accepts_its_old_arguments(now_with_frameworks: Any) -> None:
    old, new = OLD["frameworks"], now_with_frameworks
    for module, names in old["names"].items():
        assert set(names) <= set(new["names"][module])
    for name, parameters in old["signatures"].items():
        assert name in new["signatures"], f"{name} is gone"
        assert_callable_as_before(new["signatures"][name], parameters)
    for name in old["attributes"]:
        assert_attributes(new, old, name)


@pytest.mark.parametrize("suffix", OLD["formats"])
def test_every_file_format_accepts_its_old_options(suffix: str) -> None:
    try:
        error_text = surface.format_options(suffix)
    except FrameworkError as error:
        pytest.skip(str(error))
    assert set(OLD["formats"][suffix]) <= set(re.findall(r"\w+", error_text)), error_text


def test_the_error_for_an_unknown_file_format_names_the_known_formats(tmp_path: Path) -> None:
    (tmp_path / "rows.nonsense").touch()
    with pytest.raises(SourceError) as caught:
        fb.from_files(tmp_path / "rows.nonsense")
    assert set(OLD["formats"]) <= set(re.findall(r"\.[\w.]*\w", str(caught.value)))


def test_the_error_for_an_unknown_framework_names_the_known_frameworks() -> None:
    with pytest.raises(FrameworkError) as caught:
        fb.from_arrays(np.arange(4)).batch(2).feed("nonsense")
    assert set(OLD["targets"]) <= set(re.findall(r"\w+", str(caught.value)))


class TestASourceOfAnotherPackage(SourceTests):
    """The test suite for users' own sources still accepts a valid source."""

    def make_source(self, tmp_path: Path) -> Any:
        tree = {"x": np.arange(60.0).reshape(20, 3), "y": np.arange(20)}
        return fb.from_arrays(tree).source, tree


class TestAnEngineOfAnotherPackage(EngineTests):
    """The test suite for users' own engines, on the simulated engine."""

    def make_engine(self) -> Any:
        return SimulatedEngine(bytes_per_second=1e9, latency_seconds=1e-6)


# Packages that extend Forebay


PLUGIN = """
import numpy as np
import forebay as fb


def open_rows(path, *, spec=None, times=1):
    return fb.from_arrays(np.asarray(path.read_text().split(), dtype="i8") * times).source


class ListHandOff:
    name = "compat_lists"

    def held_dtype(self, dtype):
        return dtype

    def check(self, specs, names):
        pass

    def hand_off(self, roots):
        return [root.tolist() for root in roots]

    def on_device(self, index):
        raise AssertionError("lists are on no device")
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install a package with the entry points of 0.1."""
    folder = tmp_path / "site"
    info = folder / "compat_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "compat_plugin.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: compat-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[forebay.sources]\ncompat_rows = compat_plugin:open_rows\n"
        "[forebay.handoff]\ncompat_lists = compat_plugin:ListHandOff\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    yield
    sys.modules.pop("compat_plugin", None)


@pytest.mark.usefixtures("plugin")
def test_a_package_adds_a_file_format_through_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "rows.compat_rows").write_text("1 2 3 4 5")
    with fb.from_files(tmp_path / "rows.compat_rows", times=10).batch(2).feed("numpy") as feed:
        assert [batch.tolist() for batch in feed] == [[10, 20], [30, 40], [50]]


@pytest.mark.usefixtures("plugin")
def test_a_package_adds_a_framework_through_its_entry_point() -> None:
    with pytest.warns(DeprecationWarning, match="held_dtype is now framework_dtype"):
        feed = fb.from_arrays(np.arange(5)).batch(2).feed("compat_lists", device="cpu")
    with feed:
        assert list(feed) == [[0, 1], [2, 3], [4]]


# Commands


def test_every_command_is_listed(pages: dict[str, str]) -> None:
    assert set(OLD["commands"]) - {""} <= set(surface.commands_of(pages[""]))


@pytest.mark.parametrize("command", OLD["commands"])
def test_every_flag_of_a_command_accepts_its_old_values(command: str, pages: dict[str, str]) -> None:
    old, new = OLD["commands"][command], surface.parse_help(pages[command])
    assert old["flags"].keys() <= new["flags"].keys(), f"gone: {sorted(old['flags'].keys() - new['flags'].keys())}"
    for flag, takes in old["flags"].items():
        found = new["flags"][flag]
        assert set(takes) <= set(found) if isinstance(takes, list) and isinstance(found, list) else takes == found, flag
    assert new["positions"][: len(old["positions"])] == old["positions"]


def test_every_script_is_installed() -> None:
    assert set(OLD["entry_points"]) <= set(surface.entry_points())
    (script,) = entry_points(group="console_scripts", name="forebay")
    assert callable(script.load())

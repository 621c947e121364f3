"""A scenario read from TOML: a file of yours or one that comes with the package, changed by `section.field=value`."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from forebay.core.ceilings import Probe
from forebay.errors import ScenarioError
from forebay.measure.simulate.scenario import Data, Host, Maps, Remote, Scenario, Store, Training

__all__ = ["SCENARIOS", "known_scenarios", "probed", "read_scenario"]

SCENARIOS = Path(__file__).parent / "scenarios"
SECTIONS = {"data": Data, "training": Training, "maps": Maps, "host": Host, "store": Store, "remote": Remote}


def known_scenarios() -> list[str]:
    """Those that come with the package."""
    return sorted(path.stem for path in SCENARIOS.glob("*.toml"))


def read_scenario(name: str, changes: Iterable[str] = ()) -> Scenario:
    """The scenario of that file or name, with these changes, each `section.field=value` or `hosts=value`."""
    path = SCENARIOS / f"{name}.toml" if name in known_scenarios() else Path(name)
    if not path.exists():
        raise ScenarioError(
            f"there is no scenario {name!r}: give a TOML file, or one of {', '.join(known_scenarios())}."
        )
    try:
        document = tomllib.loads(path.read_text())
        for change in changes:
            _change(document, change)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path} is not TOML: {error}.") from error
    return _scenario(document)


def probed(scenario: Scenario, probe: Probe) -> Scenario:
    """The scenario with the disk and, where there is a GPU, the link of the machine that was probed."""
    return replace(scenario, host=replace(scenario.host, **probed_speeds(probe)))


def probed_speeds(probe: Probe) -> dict[str, Any]:
    """What a scenario takes of a probe, by the names of a host's fields."""
    speeds: dict[str, Any] = {}
    if probe.disk and probe.disk.disk_bytes_per_second:
        speeds["disk_bytes_per_second"] = probe.disk.disk_bytes_per_second
    if probe.device:
        speeds["link_bytes_per_second"] = probe.device.host_to_device_bytes_per_second
    return speeds


def _change(document: dict[str, Any], change: str) -> None:
    name, equals, text = change.partition("=")
    section, dot, field = name.strip().rpartition(".")
    if not equals or (dot and section not in SECTIONS):
        raise ScenarioError(
            f"{change!r} changes nothing: write SECTION.FIELD=VALUE, with one of {', '.join(SECTIONS)}."
        )
    part = document.setdefault(section, {}) if section else document
    part[field] = _value(text.strip())


def _value(text: str) -> Any:
    """As TOML has it; a word needs no quotes here."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _scenario(document: Mapping[str, Any]) -> Scenario:
    unknown = set(document) - set(SECTIONS) - {"hosts", "title"}
    if unknown:
        raise ScenarioError(f"{sorted(unknown)} are no parts of a scenario: it has {', '.join(SECTIONS)} and hosts.")
    missing = [section for section in ("data", "training") if section not in document]
    if missing:
        raise ScenarioError(f"the scenario has no [{missing[0]}]: say what is fed, and what a step takes.")
    parts = {section: _part(section, document[section]) for section in SECTIONS if section in document}
    return Scenario(
        **parts, hosts=_number("hosts", document.get("hosts", 1), int), title=str(document.get("title", ""))
    )


def _part(section: str, given: Any) -> Any:
    if not isinstance(given, Mapping):
        raise ScenarioError(f"{section} is {given!r}: make it a table, [{section}].")
    kind = SECTIONS[section]
    types = {known.name: known.type for known in fields(kind)}
    unknown = sorted(set(given) - set(types))
    if unknown:
        raise ScenarioError(f"[{section}] has no {unknown[0]!r}: it has {', '.join(types)}.")
    try:
        return kind(**{name: _number(f"{section}.{name}", value, types[name]) for name, value in given.items()})
    except TypeError as error:
        raise ScenarioError(f"[{section}] is not whole: {error}.") from error


def _number(name: str, value: Any, kind: Any) -> Any:
    """A value of the field's type; a whole number may be written as 1e9."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is str and isinstance(value, str):
        return value
    if kind is float and fits:
        return float(value)
    if kind is int and fits and value == value // 1:
        return int(value)
    raise ScenarioError(f"{name} is {value!r}: give {'a word' if kind is str else 'a number'} there.")

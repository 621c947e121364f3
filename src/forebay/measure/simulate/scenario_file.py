"""Reader of scenarios. It can change single fields, and use the speeds of a probe."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from forebay.core.ceilings import Probe
from forebay.core.json_checks import read_bounded
from forebay.errors import ScenarioError
from forebay.measure.simulate.scenario import Data, Host, Maps, Remote, Scenario, Store, Training

__all__ = ["SCENARIO_FOLDER", "builtin_scenarios", "probed_speeds", "read_scenario", "with_probed_speeds"]

SCENARIO_FOLDER = Path(__file__).parent / "scenarios"
MAX_NBYTES = 1 << 20  # 1 MiB, the limit of a scenario file; a scenario with all fields has 2 KB
_TYPE_NAMES = {str: "a string", float: "a number", int: "a whole number"}
SECTIONS = {"data": Data, "training": Training, "maps": Maps, "host": Host, "store": Store, "remote": Remote}


def builtin_scenarios() -> list[str]:
    """Return the names of the scenarios that come with the package."""
    return sorted(path.stem for path in SCENARIO_FOLDER.glob("*.toml"))


def read_scenario(name: str, changes: Iterable[str] = ()) -> Scenario:
    """Read a built-in scenario or a TOML file, and apply changes.

    A change is `section.field=value` or `hosts=value`.
    """
    path = SCENARIO_FOLDER / f"{name}.toml" if name in builtin_scenarios() else Path(name)
    if not path.exists():
        raise ScenarioError(
            f"there is no scenario {name!r}. Give a TOML file, or one of {', '.join(builtin_scenarios())}."
        )
    try:
        document = tomllib.loads(read_bounded(path, max_nbytes=MAX_NBYTES).decode())
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read: {error.strerror}. Give a TOML file.") from error
    except (RecursionError, ValueError) as error:
        raise ScenarioError(f"{path} is not TOML: {error}. Give a TOML file.") from error
    for change in changes:
        _apply_change(document, change)
    return _make_scenario(document)


def with_probed_speeds(scenario: Scenario, probe: Probe) -> Scenario:
    """Return the scenario with the speeds of disk and link that the probe measured."""
    return replace(scenario, host=replace(scenario.host, **probed_speeds(probe)))


def probed_speeds(probe: Probe) -> dict[str, Any]:
    """Return the measured speeds of disk and link. The keys are field names of `Host`."""
    speeds: dict[str, Any] = {}
    if probe.disk and probe.disk.disk_bytes_per_second:
        speeds["disk_bytes_per_second"] = probe.disk.disk_bytes_per_second
    if probe.device:
        speeds["link_bytes_per_second"] = probe.device.host_to_device_bytes_per_second
    return speeds


def _apply_change(document: dict[str, Any], change: str) -> None:
    name, equals, text = change.partition("=")
    section, dot, field = name.strip().rpartition(".")
    if not equals or (dot and section not in SECTIONS):
        raise ScenarioError(
            f"{change!r} is not a change. Write hosts=VALUE or SECTION.FIELD=VALUE; a section is one of "
            f"{', '.join(SECTIONS)}."
        )
    table = document.setdefault(section, {}) if section else document
    if not isinstance(table, dict):
        raise ScenarioError(f"{section} is {table!r}. Make it a table, [{section}].")
    table[field] = _parse_value(text.strip())


def _parse_value(text: str) -> Any:
    """Return the TOML value of a text, or the text if it has none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _make_scenario(document: Mapping[str, Any]) -> Scenario:
    unknown = set(document) - set(SECTIONS) - {"hosts", "title"}
    if unknown:
        name = sorted(unknown)[0]
        raise ScenarioError(f"a scenario has no {name!r}. Use only {', '.join(SECTIONS)}, hosts and title.")
    missing = [section for section in ("data", "training") if section not in document]
    if missing:
        raise ScenarioError(f"the scenario has no [{missing[0]}]. Add it: [data] and [training] are required.")
    sections = {name: _make_section(name, document[name]) for name in SECTIONS if name in document}
    return Scenario(
        **sections, hosts=_convert("hosts", document.get("hosts", 1), int), title=str(document.get("title", ""))
    )


def _make_section(section: str, values: Any) -> Any:
    """Make the dataclass of a section from a table of the document."""
    if not isinstance(values, Mapping):
        raise ScenarioError(f"{section} is {values!r}. Make it a table, [{section}].")
    section_class = SECTIONS[section]
    types = {item.name: item.type for item in fields(section_class)}
    unknown = sorted(set(values) - set(types))
    if unknown:
        raise ScenarioError(f"[{section}] has no field {unknown[0]!r}. Use only {', '.join(types)}.")
    converted = {name: _convert(f"{section}.{name}", value, types[name]) for name, value in values.items()}
    try:
        return section_class(**converted)
    except TypeError as error:
        raise ScenarioError(f"[{section}] is incomplete: {error}. Add the missing fields.") from error


def _convert(name: str, value: Any, field_type: Any) -> Any:
    """Convert a value to the type of its field.

    The float 1e9 is a valid whole number.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if field_type is str and isinstance(value, str):
        return value
    if field_type is float and is_number:
        return float(value)
    if field_type is int and is_number and value == value // 1:
        return int(value)
    raise ScenarioError(f"{name} is {value!r}. Give {_TYPE_NAMES[field_type]}.")

"""`forebay scale SCENARIO`: simulate a feed on a cluster, its bottleneck and lost GPU hours."""

import argparse
from typing import Any

from rich.table import Table

from forebay.cli.console import print_json, report_progress, result_console
from forebay.core.ceilings import Probe
from forebay.core.spec import format_nbytes
from forebay.errors import ScenarioError
from forebay.measure.simulate.outcome import ScenarioOutcome, ScenarioPart, assess
from forebay.measure.simulate.scenario import Scenario
from forebay.measure.simulate.scenario_file import (
    builtin_scenarios,
    probed_speeds,
    read_scenario,
    with_probed_speeds,
)

__all__ = ["add_arguments", "run"]

COLUMNS = """The table has one line for each part of the cluster. It shows the capacity of the part, the capacity that
the part needs to be just as fast as the GPUs, the share of time in which the part is busy, and the step time if the
capacity is doubled."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = COLUMNS
    parser.add_argument("scenario", help=f"a TOML file, or a built-in scenario: {', '.join(builtin_scenarios())}")
    parser.add_argument("--hosts", type=int, metavar="N", help="number of hosts that train")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.FIELD=VALUE",
        help="change a field of the scenario; repeatable",
    )
    parser.add_argument("--probed", action="store_true", help="use the speeds that `forebay probe` measured here")
    parser.add_argument(
        "--steps", type=int, metavar="N", help="steps to simulate (default: until the step time is steady)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random delays (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    probe = _load_probe() if arguments.probed else None
    scenario = _load_scenario(arguments, probe)
    with report_progress("simulating the cluster"):
        outcome = assess(scenario, steps=arguments.steps, seed=arguments.seed)
    if arguments.json:
        print_json(_to_document(outcome, probe))
    else:
        _print_outcome(outcome)
        if probe is not None:
            result_console().print(_probe_note(probe), markup=False)
    return 0


def _load_probe() -> Probe:
    probe = Probe.cached()
    if probe is None:
        raise ScenarioError("this machine has no saved probe. First run `forebay probe`, or omit --probed.")
    return probe


def _load_scenario(arguments: argparse.Namespace, probe: Probe | None) -> Scenario:
    hosts = [f"hosts={arguments.hosts}"] if arguments.hosts is not None else []
    scenario = read_scenario(arguments.scenario, [*arguments.set, *hosts])
    return scenario if probe is None else with_probed_speeds(scenario, probe)


def _probe_note(probe: Probe) -> str:
    """Return a sentence with the source of disk and link speeds: probe or scenario."""
    speeds = probed_speeds(probe)
    sources = [
        f"{name} {_format_speed(speeds[field])}" if field in speeds else f"{name} from the scenario (not probed)"
        for name, field in (("disk", "disk_bytes_per_second"), ("link", "link_bytes_per_second"))
    ]
    return f"Speeds from the probe of this machine: {', '.join(sources)}."


def _to_document(outcome: ScenarioOutcome, probe: Probe | None) -> dict[str, Any]:
    run = outcome.run
    return {
        "title": run.scenario.title,
        "probed": None if probe is None else probed_speeds(probe),
        "hosts": run.scenario.hosts,
        "gpus": run.scenario.gpus,
        "step_seconds": run.step_seconds,
        "unfed_step_seconds": outcome.always_ready.step_seconds,  # Forebay 0.1 defined this key
        "busy_share": run.busy_share,
        "bottleneck": outcome.bottleneck.name,
        "epoch_hours": outcome.epoch_hours,
        "gpu_hours": outcome.gpu_hours,
        "gpu_hours_lost_to_feeding": outcome.gpu_hours_lost_to_feeding,
        "gpu_hours_lost_to_each_other": outcome.gpu_hours_lost_to_each_other,
        "parts": [_part_to_document(outcome, part) for part in outcome.parts],
    }


def _part_to_document(outcome: ScenarioOutcome, part: ScenarioPart) -> dict[str, Any]:
    return {
        "name": part.name,
        "knob": part.parameter,  # Forebay 0.1 defined this key
        "value": part.value,
        "needed": part.needed,
        "busy_share": part.busy_share,
        "doubled_seconds": outcome.doubled_seconds.get(part.parameter),
    }


def _print_outcome(outcome: ScenarioOutcome) -> None:
    console, run, scenario = result_console(), outcome.run, outcome.run.scenario
    gpus = f"{scenario.gpus:,} GPU{'s' if scenario.gpus > 1 else ''}"
    console.print(f"{scenario.title or 'scenario'}: {scenario.hosts:,} x {scenario.host.gpus} = {gpus}", markup=False)
    console.print(
        f"Step time [bold]{_format_seconds(run.step_seconds)}[/]; "
        f"{_format_seconds(outcome.always_ready.step_seconds)} if batches were always ready. "
        f"GPUs compute [bold]{run.busy_share:.0%}[/] of the time."
    )
    slots = format_nbytes(scenario.slots * scenario.device_batch_nbytes * scenario.host.gpus)
    console.print(f"Bottleneck: [bold]{outcome.bottleneck.name}[/]. Slots use {slots} of memory per host.")
    console.print(_make_part_table(outcome))
    console.print(
        f"An epoch takes {_format_seconds(outcome.epoch_hours * 3600)}, or {outcome.gpu_hours:,.1f} GPU hours. "
        f"GPUs wait for batches during {outcome.gpu_hours_lost_to_feeding:,.1f} of these hours. They wait for each "
        f"other, run all-reduces and take batches during {outcome.gpu_hours_lost_to_each_other:,.1f} hours."
    )


def _make_part_table(outcome: ScenarioOutcome) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for position, column in enumerate(("part", "capacity", "needed", "busy", "step if doubled")):
        table.add_column(column, justify="right" if position else "left", no_wrap=True)
    for part in outcome.parts:
        needed = _format_amount(part, part.needed) if part.needed else ""
        busy = f"{part.busy_share:.0%}" if part.busy_share else ""
        doubled_seconds = outcome.doubled_seconds.get(part.parameter)
        doubled = "" if doubled_seconds is None else _format_seconds(doubled_seconds)
        table.add_row(part.name, _format_amount(part, part.value), needed, busy, doubled)
    return table


def _format_amount(part: ScenarioPart, value: float) -> str:
    if part.parameter.endswith("bytes_per_second"):
        return _format_speed(value)
    if part.parameter.endswith(("compute_seconds", "seconds_per_batch")):
        return _format_seconds(value)
    amount = f"{value:,.1f}".removesuffix(".0")
    return f"{amount} nodes" if part.parameter == "remote.nodes" else amount


def _format_speed(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:,.1f} GB/s" if bytes_per_second >= 1e9 else f"{bytes_per_second / 1e6:.2f} MB/s"


def _format_seconds(seconds: float) -> str:
    for unit_seconds, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= unit_seconds:
            return f"{seconds / unit_seconds:,.2f} {unit}"
    return f"{seconds * 1e3:.2f} ms"

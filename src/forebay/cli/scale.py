"""`forebay scale SCENARIO`: a feed on a cluster that is not here: its pace, what holds it back, what that costs."""

import argparse
from dataclasses import asdict
from typing import Any

from rich.table import Table

from forebay.cli.console import print_json, result_console
from forebay.core.ceilings import Probe
from forebay.core.spec import format_nbytes
from forebay.errors import ScenarioError
from forebay.measure.simulate.outcome import Outcome, Part, judge
from forebay.measure.simulate.scenario import Scenario
from forebay.measure.simulate.scenario_file import known_scenarios, probed, probed_speeds, read_scenario

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "scale"
HELP = "simulate a feed on a cluster: its pace, what holds it back, what that costs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", help=f"a TOML file, or one that is known: {', '.join(known_scenarios())}")
    parser.add_argument("--hosts", type=int, metavar="N", help="so many hosts that train")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.FIELD=VALUE",
        help="change a part of the scenario; may be repeated",
    )
    parser.add_argument("--probed", action="store_true", help="with the disk and the link that were probed here")
    parser.add_argument("--steps", type=int, metavar="N", help="steps to simulate (default: until they are even)")
    parser.add_argument("--seed", type=int, default=0, help="of what is left to chance (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    probe = _probe() if arguments.probed else None
    outcome = judge(_scenario(arguments, probe), steps=arguments.steps, seed=arguments.seed)
    if arguments.json:
        print_json(_document(outcome, probe))
    else:
        _show(outcome)
        if probe is not None:
            result_console().print(_taken(probe), markup=False)
    return 0


def _probe() -> Probe:
    probe = Probe.cached()
    if probe is None:
        raise ScenarioError("this machine was not probed yet: run `forebay probe`, or leave --probed out.")
    return probe


def _scenario(arguments: argparse.Namespace, probe: Probe | None) -> Scenario:
    hosts = [f"hosts={arguments.hosts}"] if arguments.hosts is not None else []
    scenario = read_scenario(arguments.scenario, [*arguments.set, *hosts])
    return scenario if probe is None else probed(scenario, probe)


def _taken(probe: Probe) -> str:
    """What the scenario has of this machine, and what it has not."""
    speeds = probed_speeds(probe)
    told = [
        f"{name} {_speed(speeds[field])}" if field in speeds else f"{name} as described: none was probed"
        for name, field in (("disk", "disk_bytes_per_second"), ("link", "link_bytes_per_second"))
    ]
    return f"of this machine, as probed: {', '.join(told)}"


def _document(outcome: Outcome, probe: Probe | None) -> dict[str, Any]:
    run = outcome.run
    return {
        "title": run.scenario.title,
        "probed": None if probe is None else probed_speeds(probe),
        "hosts": run.scenario.hosts,
        "gpus": run.scenario.gpus,
        "step_seconds": run.step_seconds,
        "unfed_step_seconds": outcome.unfed.step_seconds,
        "busy_share": run.busy_share,
        "bottleneck": outcome.bottleneck.name,
        "epoch_hours": outcome.epoch_hours,
        "gpu_hours": outcome.gpu_hours,
        "gpu_hours_lost_to_feeding": outcome.gpu_hours_lost_to_feeding,
        "gpu_hours_lost_to_each_other": outcome.gpu_hours_lost_to_each_other,
        "parts": [asdict(part) for part in outcome.parts],
    }


def _show(outcome: Outcome) -> None:
    out, run, scenario = result_console(), outcome.run, outcome.run.scenario
    gpus = f"{scenario.gpus:,} GPU{'s' if scenario.gpus > 1 else ''}"
    out.print(f"{scenario.title or 'a scenario'}: {scenario.hosts:,} x {scenario.host.gpus} = {gpus}", markup=False)
    out.print(
        f"a step takes [bold]{_seconds(run.step_seconds)}[/], {_seconds(outcome.unfed.step_seconds)} if batches were "
        f"always there; GPUs compute [bold]{run.busy_share:.0%}[/] of the time"
    )
    slots = format_nbytes(scenario.slots * scenario.crossing_batch_nbytes * scenario.host.gpus)
    out.print(f"what holds it back: [bold]{outcome.bottleneck.name}[/]; slots take {slots} of a host")
    out.print(_parts(outcome))
    out.print(
        f"an epoch takes {_seconds(outcome.epoch_hours * 3600)}, {outcome.gpu_hours:,.1f} GPU hours; of these are lost "
        f"{outcome.gpu_hours_lost_to_feeding:,.1f} to feeding, {outcome.gpu_hours_lost_to_each_other:,.1f} to waiting "
        "for each other"
    )


def _parts(outcome: Outcome) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for place, column in enumerate(("part", "has", "needs", "busy", "step if doubled")):
        table.add_column(column, justify="right" if place else "left", no_wrap=True)
    for part in outcome.parts:
        needed = _amount(part, part.needed) if part.needed else ""
        busy = f"{part.busy_share:.0%}" if part.busy_share else ""
        doubled = "" if part.doubled_seconds is None else _seconds(part.doubled_seconds)
        table.add_row(part.name, _amount(part, part.value), needed, busy, doubled)
    return table


def _amount(part: Part, value: float) -> str:
    if part.knob.endswith("bytes_per_second"):
        return _speed(value)
    if part.knob.endswith(("compute_seconds", "seconds_per_batch")):
        return _seconds(value)
    amount = f"{value:,.1f}".removesuffix(".0")
    return f"{amount} nodes" if part.knob == "remote.nodes" else amount


def _speed(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:,.1f} GB/s" if bytes_per_second >= 1e9 else f"{bytes_per_second / 1e6:.2f} MB/s"


def _seconds(seconds: float) -> str:
    for least, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= least:
            return f"{seconds / least:,.2f} {unit}"
    return f"{seconds * 1e3:.2f} ms"

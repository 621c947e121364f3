"""`forebay info`: print versions and hardware for a bug report."""

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

import forebay
from forebay import __version__
from forebay.cli.console import print_json, result_console
from forebay.core.hardware import Hardware
from forebay.core.machine import Machine, installed_versions
from forebay.core.spec import format_nbytes

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    machine, hardware, versions = Machine.detect(), Hardware.detect(), installed_versions()
    if arguments.json:
        facts: dict[str, Any] = {"python": machine.python, "system": machine.system, "cpu": machine.cpu}
        facts |= {"cores": machine.cores, "memory_nbytes": machine.memory_nbytes}
        facts |= {"gpus": list(hardware.gpus), "driver": hardware.driver_version}
        print_json({"forebay": __version__, "machine": facts, "compiled": _compiled_files(), "installed": versions})
        return 0
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("forebay", __version__)
    table.add_row("Python", machine.python)
    table.add_row("system", machine.system)
    compiled = _compiled_files()
    missing = [name for name, is_compiled in compiled.items() if not is_compiled]
    table.add_row("C files", f"not compiled: {', '.join(missing)}" if missing else "compiled")
    table.add_row("processor", f"{machine.cpu}, {machine.cores} usable cores")
    table.add_row("memory", format_nbytes(machine.memory_nbytes))
    for gpu in hardware.gpus or ("none that CUDA can use",):
        table.add_row("GPU", gpu + (f", driver {hardware.driver_version}" if hardware.driver_version else ""))
    for name, version in versions.items():
        table.add_row(name, version)
    result_console().print(table)
    return 0


def _compiled_files() -> dict[str, bool]:
    """Return, for each C file of the package, whether its library exists.

    If a library is missing, Forebay uses slower code instead.
    """
    sources = Path(forebay.__file__).parent.rglob("*.c")
    return {source.name: source.with_suffix(".so").exists() for source in sorted(sources)}

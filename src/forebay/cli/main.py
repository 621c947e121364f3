"""`forebay COMMAND`: run a command and turn exceptions into exit codes.

The exit code is 0 for success, 2 for an error and 130 for an interrupt. `forebay doctor --fail-on` also returns 1.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from forebay import __version__
from forebay.cli.console import error_console
from forebay.errors import ForebayError

__all__ = ["main"]

COMMANDS = ("doctor", "demo", "probe", "plan", "bench", "scale", "info")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    commands = {name: importlib.import_module(f"forebay.cli.{name}") for name in COMMANDS}
    parsed = _make_parser(commands).parse_args(arguments)
    try:
        return int(commands[parsed.command].run(parsed))
    except BrokenPipeError:  # the reader of the pipe, such as `head`, has closed it
        # Python flushes stdout at exit. Redirect it, or the flush would raise BrokenPipeError again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ForebayError, OSError) as error:
        error_console().print(f"forebay {parsed.command}: {error}", style="red", markup=False)
        return 2
    except KeyboardInterrupt:
        error_console().print("interrupted", style="red")
        return 130


def _make_parser(commands: dict[str, ModuleType]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="forebay",
        description="Load data into TensorFlow, Keras, PyTorch, JAX and NumPy, and find what slows training down.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"forebay {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in commands.items():
        command = subparsers.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(command)
    return parser

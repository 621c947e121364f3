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

HELP = {
    "doctor": "profile a training script: which lines slow it down, their cost, their cure",
    "demo": "make data, load it with NumPy and with Forebay, and compare their speeds (a few seconds)",
    "probe": "measure memory, disk, GPU link and kernel launches of this machine (10 seconds; results are saved)",
    "plan": "show the plan of a feed of this data, and measure its speed on this machine",
    "bench": "compare Forebay with tf.data, DataLoader, Grain and others on this machine (10 minutes; 2 with --quick)",
    "scale": "simulate a feed on a cluster: its speed, its bottleneck, the GPU hours lost",
    "info": "print versions and hardware for a bug report",
}
COMMANDS = tuple(HELP)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    module = _import_command(arguments)
    parsed = _make_parser(module).parse_args(arguments)
    assert module is not None  # otherwise, parse_args has printed the help or an error, and has exited
    try:
        return int(module.run(parsed))
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


def _import_command(arguments: Sequence[str]) -> ModuleType | None:
    """Import the command that the arguments name. The modules of the others would take longer than a short command."""
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    return importlib.import_module(f"forebay.cli.{name}") if name in COMMANDS else None


def _make_parser(module: ModuleType | None) -> argparse.ArgumentParser:
    """Make the parser of all commands. Only the imported one has its arguments."""
    parser = argparse.ArgumentParser(
        prog="forebay",
        description="Load data into TensorFlow, Keras, PyTorch, JAX and NumPy, and find what slows training down.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"forebay {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in HELP.items():
        command = subparsers.add_parser(name, help=text, description=text)
        if module is not None and module.__name__.endswith(f".{name}"):
            module.add_arguments(command)
    return parser

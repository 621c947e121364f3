"""`forebay COMMAND`: run a command and turn exceptions into exit codes.

The exit code is 0 for success, 2 for an error and 130 for an interrupt. `forebay doctor --fail-on` also returns 1.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from types import ModuleType

from forebay import __version__
from forebay.cli.console import error_console
from forebay.errors import ForebayError

__all__ = ["main"]

HELP = {
    "doctor": "profile a training script: report the lines that slow it down, their cost and their cures",
    "demo": "compare the speeds of NumPy and Forebay on generated data, and profile a small script",
    "probe": "measure memory, disk, GPU link and kernel launches of this machine (10 seconds; results are saved)",
    "plan": "show the plan of a feed for the given data, and measure the speed of the feed on this machine",
    "bench": "compare Forebay with tf.data, DataLoader, Grain and others on this machine (10 minutes; 2 with --quick)",
    "scale": "simulate a feed on a cluster: report its speed, its bottleneck and the lost GPU hours",
    "info": "print versions and hardware for a bug report",
}
COMMANDS = tuple(HELP)
MIN_SIMILARITY = 0.7  # of a suggested command or option, as difflib computes it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    # Import only the requested command, because importing all commands takes longer than running a short one.
    command = importlib.import_module(f"forebay.cli.{name}") if name in COMMANDS else None
    parser, subparser = _make_parsers(name, command)
    if not arguments:
        parser.print_help()
        return 0
    if similar := get_close_matches(name, COMMANDS, n=1, cutoff=MIN_SIMILARITY) if command is None else []:
        parser.error(f"there is no command {name!r}. Did you mean {similar[0]}?")
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        (subparser or parser).error(_describe_unknown(unknown[0], subparser))
    assert command is not None  # otherwise, the parser has printed the help or an error, and has exited
    try:
        return int(command.run(parsed))
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


def _make_parsers(
    name: str, command: ModuleType | None
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser | None]:
    """Make the parser of all commands. Return it and the parser of `command`.

    Only the parser of `command` gets arguments, because the other commands are not imported.
    """
    parser = argparse.ArgumentParser(
        prog="forebay",
        description="Load data into TensorFlow, Keras, PyTorch, JAX and NumPy, and find what slows training down.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"forebay {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    parsers = {each: subparsers.add_parser(each, help=text, description=text) for each, text in HELP.items()}
    if command is not None:
        command.add_arguments(parsers[name])
    return parser, parsers.get(name)


def _describe_unknown(argument: str, parser: argparse.ArgumentParser | None) -> str:
    """Return the error message for an unknown argument, with the most similar option."""
    name = argument.partition("=")[0]
    options = [each for action in parser._actions for each in action.option_strings] if parser else []
    similar = get_close_matches(name, options, n=1, cutoff=MIN_SIMILARITY)
    hint = f" Did you mean {similar[0]}?" if similar else ""
    return f"unknown {'option' if name.startswith('-') else 'argument'} {name}.{hint}"

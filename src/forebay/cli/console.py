"""Output of the commands: results on stdout, progress and errors on stderr."""

import json
import sys
from typing import Any

from rich.console import Console

__all__ = ["SCHEMA_VERSION", "error_console", "print_json", "result_console"]

SCHEMA_VERSION = 1  # of the JSON that commands print; the file of `forebay doctor --json` has its own version


def result_console() -> Console:
    """Return a console for stdout. Rich respects NO_COLOR and writes plain text into a pipe."""
    return Console(highlight=False, emoji=False)


def error_console() -> Console:
    """Return a console for stderr."""
    return Console(stderr=True, highlight=False, emoji=False)


def print_json(document: dict[str, Any]) -> None:
    """Print a document to stdout as JSON, with its schema version."""
    json.dump({"schema_version": SCHEMA_VERSION, **document}, sys.stdout, indent=1)
    sys.stdout.write("\n")

"""Where commands talk: results on stdout, for people or as JSON; everything else on stderr."""

import json
import sys
from typing import Any

from rich.console import Console

__all__ = ["SCHEMA_VERSION", "console", "print_json", "talk"]

SCHEMA_VERSION = 1


def console() -> Console:
    """For results; rich obeys NO_COLOR and writes plainly into a pipe."""
    return Console(highlight=False, emoji=False)


def talk() -> Console:
    """For progress and errors."""
    return Console(stderr=True, highlight=False, emoji=False)


def print_json(document: dict[str, Any]) -> None:
    json.dump({"schema_version": SCHEMA_VERSION, **document}, sys.stdout, indent=1)
    sys.stdout.write("\n")

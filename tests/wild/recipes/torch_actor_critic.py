"""An environment that ends the training after 100 episodes."""

from pathlib import Path

from tests.wild.made_up import ENDING, write_module

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
IS_COMPLETE = False


def prepare(folder: Path) -> None:
    write_module(folder, "ending", ENDING)

"""The script makes its own points. It trains for more steps. A function has the name that JAX uses now."""

from pathlib import Path

from tests.wild.edits import rename_attribute

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"num_epochs": "30_000"}
STEP: int | str = 102  # line of the loop or function whose body is one step
CHANGES = [rename_attribute("tree_map", "tree.map")]


def prepare(folder: Path) -> None:
    """The script needs no files."""

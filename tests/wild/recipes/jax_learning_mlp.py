"""Make `mlp.py` of Willis1118/JAX_learning run offline.

The script makes its own training points. The recipe sets more steps and the current name of a JAX function.
"""

from pathlib import Path

from tests.wild.edits import rename_attribute

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"num_epochs": "30_000"}
STEP: int | str = 102  # line of the loop or function whose body is one step
CHANGES = [rename_attribute("tree_map", "tree.map")]


def prepare(folder: Path) -> None:
    """The script needs no files."""

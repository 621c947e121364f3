"""Make `docs_nnx/guides/optimization_cookbook.ipynb` of google/flax run offline.

The notebook draws its own numbers. The recipe sets more steps. The last part of the notebook needs eight devices: the
recipe ends the script before this part.
"""

from pathlib import Path

from tests.wild.edits import import_instead, set_range

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 39  # line of the loop or function whose body is one step
CHANGES = [set_range("_", 60_000), import_instead("reshard", "raise SystemExit")]


def prepare(folder: Path) -> None:
    """The script needs no files."""

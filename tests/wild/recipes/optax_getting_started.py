"""Make `docs/getting_started.ipynb` of google-deepmind/optax run offline.

The notebook draws its own numbers. The recipe sets more steps of the first loops.
"""

from pathlib import Path

from tests.wild.edits import set_range

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 30  # line of the loop or function whose body is one step
CHANGES = [set_range("_", 6000)]


def prepare(folder: Path) -> None:
    """The script needs no files."""

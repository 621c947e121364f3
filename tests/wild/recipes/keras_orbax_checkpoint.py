"""Make `guides/ipynb/orbax_checkpoint.ipynb` of keras-team/keras-io run offline.

The notebook makes its own rows. The recipe sets more rows.

The last part of the notebook needs four devices. On a machine with one GPU, the script ends before this part.
"""

from pathlib import Path

from tests.wild.edits import set_literal

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = "fit"
CHANGES = [set_literal(256, "400_000")]


def prepare(folder: Path) -> None:
    """The script needs no files."""

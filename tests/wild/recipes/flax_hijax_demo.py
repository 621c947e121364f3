"""Make `examples/nnx_toy_examples/hijax_demo.py` of google/flax run offline.

The script makes its own points. The recipe sets more steps.
"""

from pathlib import Path

from tests.wild.edits import rename_keyword

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"total_steps": "30_000"}
STEP: int | str = 255  # line of the loop or function whose body is one step
CHANGES = [rename_keyword("with_vars", "is_mutable", "hijax")]


def prepare(folder: Path) -> None:
    """The script needs no files."""

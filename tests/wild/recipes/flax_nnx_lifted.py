"""Make `examples/nnx_toy_examples/02_lifted_transforms.py` of google/flax run offline.

The script makes its own training points. The recipe sets more steps.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"total_steps": "30_000"}
STEP: int | str = 89  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    """The script needs no files."""

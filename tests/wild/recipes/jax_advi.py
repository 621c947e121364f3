"""Make `examples/advi.py` of jax-ml/jax run offline.

The script draws its own samples.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 135  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    """The script needs no files."""

"""Make `benchmarks/nnx_simple_training.py` of google/flax run offline.

The script makes its own training points.
"""

from pathlib import Path

ARGUMENTS: list[str] = ["--mode=nnx", "--total_steps=2000"]
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 126  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    """The script needs no files."""

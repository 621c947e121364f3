"""Make `examples/vision/vit.py` of mlnomadpy/flaxdocs run offline.

The script makes its own images.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 208  # line of the loop or function whose body is one step
# (path in the repository, path in the folder in which the script runs)
FILES: list[tuple[str, str]] = [
    (f"examples/shared/{name}.py", f"shared/{name}.py") for name in ("__init__", "models", "training_utils")
]


def prepare(folder: Path) -> None:
    """The script needs no files."""

"""Make `nn/dynamic_net.py` of jcjohnson/pytorch-examples run offline.

The script makes its own random arrays.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 58  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    """The script needs no files."""

"""Make `projects/adder/adder.py` of karpathy/minGPT run offline.

The script makes its own sums.
"""

from pathlib import Path

ARGUMENTS: list[str] = ["--trainer.max_iters=200", "--data.ndigit=1"]
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 181  # line of the loop or function whose body is one step
# (path in the repository, path in the folder in which the script runs)
FILES: list[tuple[str, str]] = [("mingpt", "mingpt")]


def prepare(folder: Path) -> None:
    """The script needs no files."""

"""Make `pygcn/train.py` of tkipf/pygcn run offline.

A random citation graph of 1600 nodes with seven classes.
"""

from pathlib import Path

from tests.wild.edits import call_instead
from tests.wild.made_up import numbers

ARGUMENTS: list[str] = ["--no-cuda"]
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 100  # line of the loop or function whose body is one step
CHANGES = [call_instead("load_data", "load_data", '"data/"')]
# (path in the repository, path in the folder in which the script runs)
FILES: list[tuple[str, str]] = [("pygcn", "pygcn")]


def prepare(folder: Path) -> None:
    generator = numbers()
    (folder / "data").mkdir()
    rows = [[index, *generator.integers(0, 2, 200), f"class{index % 7}"] for index in range(1600)]
    (folder / "data" / "cora.content").write_text("\n".join(" ".join(map(str, row)) for row in rows))
    edges = generator.integers(0, 1600, (5000, 2))
    (folder / "data" / "cora.cites").write_text("\n".join(f"{one} {other}" for one, other in edges))

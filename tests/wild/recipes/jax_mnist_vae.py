"""Random grey images in place of MNIST."""

from pathlib import Path

from tests.wild.made_up import write_digits

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"TMPDIR": ".", "MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"num_epochs": "5"}
IS_COMPLETE = False
FILES: list[tuple[str, str]] = [("examples/datasets.py", "examples/datasets.py")]


def prepare(folder: Path) -> None:
    write_digits(folder / "data", 1280, 320, compressed=True)

"""The random images of the script, with smaller networks."""

from pathlib import Path

ARGUMENTS: list[str] = ["--dataset", "fake", "--batchSize", "16", "--ngf", "8", "--ndf", "8", "--niter", "1"]
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
IS_COMPLETE = False


def prepare(folder: Path) -> None:
    """The script needs no files."""

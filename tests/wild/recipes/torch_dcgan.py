"""Make `dcgan/main.py` of pytorch/examples run offline.

The script makes its own random images. The recipe sets fewer images and smaller networks.
"""

from pathlib import Path

from tests.wild.edits import call_instead

ARGUMENTS: list[str] = ["--dataset", "fake", "--batchSize", "16", "--ngf", "8", "--ndf", "8", "--niter", "1"]
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 223  # line of the loop or function whose body is one step
CHANGES = [call_instead("FakeData", "dset.FakeData", "640")]


def prepare(folder: Path) -> None:
    """The script needs no files."""

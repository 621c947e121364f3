"""Make `cartpole_rl.py` of VenusAradhya/rl_toy_project run offline.

The script uses an environment of Gymnasium.
"""

from pathlib import Path

from tests.wild.edits import set_range

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 56  # line of the loop that takes most of the time
CHANGES = [set_range("episode", 40)]


def prepare(folder: Path) -> None:
    """The script needs no files."""

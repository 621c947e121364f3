"""Make `examples/rl/ddpg_pendulum.py` of keras-team/keras-io run offline.

The environment is part of Gymnasium. An episode has 200 steps.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"total_episodes": "4"}
STEP: int | str = 366  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    """The script needs no files."""

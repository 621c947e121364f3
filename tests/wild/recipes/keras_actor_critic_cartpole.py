"""Make `examples/rl/actor_critic_cartpole.py` of keras-team/keras-io run offline.

An environment that ends the training after 25 episodes.
"""

from pathlib import Path

from tests.wild.edits import wrap_call
from tests.wild.made_up import ENDING, write_module

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 100  # line of the loop or function whose body is one step
CHANGES = [wrap_call("make", '__import__("ending").Ending(', ", 25)")]


def prepare(folder: Path) -> None:
    write_module(folder, "ending", ENDING)

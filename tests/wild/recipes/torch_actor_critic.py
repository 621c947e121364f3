"""Make `reinforcement_learning/actor_critic.py` of pytorch/examples run offline.

An environment that ends the training after 100 episodes.
"""

from pathlib import Path

from tests.wild.edits import wrap_call
from tests.wild.made_up import ENDING, write_module

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 142  # line of the loop or function whose body is one step
CHANGES = [wrap_call("make", '__import__("ending").Ending(', ", 100)")]


def prepare(folder: Path) -> None:
    write_module(folder, "ending", ENDING)

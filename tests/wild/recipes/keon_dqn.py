"""Make `dqn.py` of keon/deep-q-learning run offline.

An environment of Gymnasium with the interface of the older package.
"""

from pathlib import Path

from tests.wild.edits import rename_keyword, wrap_value
from tests.wild.made_up import write_module

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"EPISODES": "4"}
STEP: int | str = 45  # line of the loop or function whose body is one step
CHANGES = [wrap_value("action_size", "int(", ")"), rename_keyword("Adam", "lr", "learning_rate")]
OLDER = '''
    """The interface of Gym before version 0.26 for environments of Gymnasium."""

    import gymnasium


    class Older(gymnasium.Wrapper):
        def reset(self, **options):
            return self.env.reset(**options)[0]

        def step(self, action):
            observation, reward, is_terminated, is_truncated, more = self.env.step(action)
            return observation, reward, is_terminated or is_truncated, more


    def make(name):
        return Older(gymnasium.make(name))
'''


def prepare(folder: Path) -> None:
    write_module(folder, "gym", OLDER)

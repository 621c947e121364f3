"""Make `makemore.py` of karpathy/makemore run offline.

Random words in place of names.
"""

from pathlib import Path

from tests.wild.edits import import_instead
from tests.wild.made_up import words

ARGUMENTS: list[str] = ["--max-steps", "150"]
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 670  # line of the loop or function whose body is one step
CHANGES = [import_instead("SummaryWriter", "from unittest.mock import MagicMock as SummaryWriter")]


def prepare(folder: Path) -> None:
    (folder / "names.txt").write_text("\n".join(words(2000)))

"""Random words in place of names."""

from pathlib import Path

from tests.wild.made_up import words

ARGUMENTS: list[str] = ["--max-steps", "150"]
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
IS_COMPLETE = False


def prepare(folder: Path) -> None:
    (folder / "names.txt").write_text("\n".join(words(2000)))

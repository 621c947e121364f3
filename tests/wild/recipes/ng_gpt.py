"""Make `gpt.py` of karpathy/ng-video-lecture run offline.

A text of random words, with a smaller model.
"""

from pathlib import Path

from tests.wild.made_up import text

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {
    "max_iters": "100",
    "eval_iters": "2",
    "eval_interval": "50",
    "block_size": "32",
    "n_embd": "48",
    "n_layer": "2",
    "batch_size": "16",
    "max_new_tokens": "20",
}
STEP: int | str = 206  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    (folder / "input.txt").write_text(text(50_000))

"""Make `examples/gradient_accumulation_and_microbatching.ipynb` of google-deepmind/optax run offline.

The notebook draws its own tokens. The recipe accumulates the gradients of more steps.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"accumulation_steps": "1200"}
STEP: int | str = 96  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    """The script needs no files."""

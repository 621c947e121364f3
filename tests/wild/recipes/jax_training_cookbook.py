"""Make `docs/the-training-cookbook.py` of jax-ml/jax run offline.

The script contains its text. The recipe sets a smaller model.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {
    "embed_dim": "64",
    "num_layers": "2",
    "head_dim": "16",
    "num_train_steps": "40",
    "mlp_dim": "256",
}
STEP: int | str = 241  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    """The script needs no files."""

"""Make `flax_neural_network_sin.py` of fgaray/experiments_jax run offline.

The script makes its own training points.
"""

from pathlib import Path

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"N_EPOCHS": "1000"}
STEP: int | str = 89  # line of the loop or function whose body is one step


def prepare(folder: Path) -> None:
    (folder / "images").mkdir()

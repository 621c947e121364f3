"""Make `ddpm.py` of tanelp/tiny-diffusion run offline.

The script makes the two moons of scikit-learn.
"""

from pathlib import Path

ARGUMENTS: list[str] = ["--dataset", "moons", "--num_epochs", "2", "--eval_batch_size", "200"]
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 183  # line of the loop or function whose body is one step
# (path in the repository, path in the folder in which the script runs)
FILES: list[tuple[str, str]] = [
    ("datasets.py", "datasets.py"),
    ("positional_embeddings.py", "positional_embeddings.py"),
]


def prepare(folder: Path) -> None:
    """The script needs no files."""

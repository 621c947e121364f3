"""Make `5-1.Transformer/Transformer.py` of graykode/nlp-tutorial run offline.

The script contains its one sentence. The recipe sets a smaller model.
"""

from pathlib import Path

from tests.wild.edits import call_instead

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"d_model": "128", "d_ff": "256", "n_layers": "2"}
STEP: int | str = 206  # line of the loop or function whose body is one step
CHANGES = [call_instead("showgraph", "print")]


def prepare(folder: Path) -> None:
    """The script needs no files."""

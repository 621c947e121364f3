"""Make `train_length_extrapolate.py` of lucidrains/x-transformers run offline.

Random letters in place of enwik8, with a smaller model and shorter sequences.

A stand-in for safetensors, which the script does not use, is in its folder. The script needs the packages
accelerate, einops, einx, frozendict, loguru and torch-einops-utils.
"""

import gzip
from pathlib import Path

from tests.wild.edits import set_literal
from tests.wild.made_up import numbers, write_module

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {"dim": "64", "depth": "2", "heads": "2", "SEQ_LEN": "64", "GENERATE_LENGTH": "32"}
STEP: int | str = 121  # line of the loop or function whose body is one step
CHANGES = [set_literal(1e5, "100"), set_literal(95e6, "2e6"), set_literal(90e6, "1.8e6")]
# (path in the repository, path in the folder in which the script runs)
FILES: list[tuple[str, str]] = [("x_transformers", "x_transformers")]
SAFETENSORS = '''
    """Names that accelerate imports and the script does not use."""

    safe_open = load_file = load_model = save_file = None
'''


def prepare(folder: Path) -> None:
    (folder / "data").mkdir()
    with gzip.open(folder / "data" / "enwik8.gz", "wb", compresslevel=1) as file:
        file.write(numbers().integers(97, 123, 2_000_000, dtype="uint8").tobytes())
    (folder / "safetensors").mkdir()
    for module in ("__init__", "torch"):
        write_module(folder / "safetensors", module, SAFETENSORS)

"""Make `tsmixer/tsmixer_basic/run.py` of google-research/google-research run offline.

Random numbers in place of the hourly temperatures of electricity transformers, and a narrower model.

Keras 3 has other names for the transposition of symbolic tensors and for files of weights. Its batch normalisation
takes one axis, so the script uses layer normalisation. The repository imports the modules `rev_in` and `tsmixer` by
older names.
"""

from pathlib import Path

from tests.wild.edits import call_instead, import_instead, rename_keyword, wrap_call
from tests.wild.made_up import write_series

ARGUMENTS: list[str] = ["--data", "ETTh1", "--ff_dim", "64", "--train_epochs", "1", "--norm_type", "L"]
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = "fit"
CHANGES = [wrap_call("join", "", ' + ".weights.h5"')]
# (path in the repository, path in the folder in which the script runs)
FILES: list[tuple[str, str]] = [
    ("tsmixer/tsmixer_basic/models", "models"),
    ("tsmixer/tsmixer_basic/data_loader.py", "data_loader.py"),
]


def prepare(folder: Path) -> None:
    model = folder / "models" / "tsmixer.py"
    text = rename_keyword("transpose", "perm", "axes")(model.read_text())
    model.write_text(call_instead("transpose", "tf.keras.ops.transpose")(text))
    other = folder / "models" / "tsmixer_rev_in.py"
    text = import_instead("RevNorm", "from models.rev_in import RevNorm")(other.read_text())
    other.write_text(import_instead("res_block", "from models.tsmixer import res_block")(text))
    write_series(folder / "dataset" / "ETTh1.csv", 14_400, 7)

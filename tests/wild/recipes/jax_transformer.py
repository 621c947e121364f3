"""Make `training.py` of michael-diggin/jax-transformer run offline.

A text of random words, with a smaller model, smaller batches and shorter sequences.

The layers of the repository do not run with this version of JAX: they pass two values where JAX expects a list, and
each layer has its own mask, which JAX compares with others. The recipe makes one list and shares one mask. It also
removes a keyword argument of `log_softmax` that JAX no longer has.
"""

from pathlib import Path

from tests.wild.edits import call_instead, drop_keyword, wrap_call
from tests.wild.made_up import text, write_module

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {
    "BATCH_SIZE": "4",
    "MAX_SEQ_LEN": "64",
    "MODEL_DIM": "192",
    "NUM_TRANSFORMER_BLOCKS": "2",
    "NUM_STEPS": "150",
}
STEP: int | str = 109  # line of the loop or function whose body is one step
# (path in the repository, path in the folder in which the script runs)
FILES: list[tuple[str, str]] = [(f"{name}.py", f"{name}.py") for name in ("data", "loss", "model", "modules", "opt")]
SHARED = '''
    """One result of a function for all callers."""

    import functools


    @functools.cache
    def once(function, *arguments):
        return function(*arguments)
'''


def prepare(folder: Path) -> None:
    write_module(folder, "shared", SHARED)
    layers = folder / "modules.py"
    text_of_layers = call_instead("get_training_mask", '__import__("shared").once', "cls.get_training_mask")(
        layers.read_text()
    )
    layers.write_text(wrap_call("once", "", "; heads = [heads, mask]")(text_of_layers))
    loss = folder / "loss.py"
    loss.write_text(drop_keyword("log_softmax", "initial")(loss.read_text()))
    (folder / ".training").mkdir()
    (folder / ".training" / "data.txt").write_text(text(200_000))

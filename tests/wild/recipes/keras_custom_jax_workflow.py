"""Make `examples/demo_custom_jax_workflow.py` of keras-team/keras run offline.

The script makes its own random arrays, here for more batches.
"""

from pathlib import Path

from tests.wild.edits import import_instead, set_range, wrap_value

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 110  # line of the loop or function whose body is one step
CHANGES = [
    import_instead("backend", "from keras.src import backend"),
    set_range("_", 200),
    wrap_value("trainable_variables", "[each.value for each in ", "]"),
    wrap_value("non_trainable_variables", "[each.value for each in ", "]"),
    wrap_value("optimizer_variables", "[each.value for each in ", "]"),
]


def prepare(folder: Path) -> None:
    """The script needs no files."""

"""Make `examples/demo_custom_tf_workflow.py` of keras-team/keras run offline.

The script makes its own random arrays, here for more batches.
"""

from pathlib import Path

from tests.wild.edits import import_instead, set_literal

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 82  # line of the loop or function whose body is one step
CHANGES = [
    import_instead("backend", "from keras.src import backend"),
    set_literal(20, "5000"),
]


def prepare(folder: Path) -> None:
    """The script needs no files."""

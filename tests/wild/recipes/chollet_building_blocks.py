"""Make `chapter02_mathematical-building-blocks.ipynb` of fchollet/deep-learning-with-python-notebooks run offline.

Random grey images in place of MNIST. The recipe selects the TensorFlow backend, which the notebook needs for its own
training loop. The models that Keras trains earlier in the notebook train for one epoch.
"""

from pathlib import Path

from tests.wild.edits import call_instead, set_literal
from tests.wild.made_up import store_images, write_display, write_module

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 383  # line of the loop or function whose body is one step
CHANGES = [
    call_instead("load_data", '__import__("stored").load', '"mnist.npz"'),
    set_literal("jax", '"tensorflow"'),
    set_literal(5, "1"),
]
MAGIC = '''
    """The decorator of IPython that the notebook uses."""


    def register_cell_magic(function):
        """A script has no cells."""
        return function
'''


def prepare(folder: Path) -> None:
    write_display(folder)
    (folder / "IPython" / "core").mkdir()
    write_module(folder / "IPython" / "core", "__init__", "")
    write_module(folder / "IPython" / "core", "magic", MAGIC)
    store_images(folder, "mnist.npz", (28, 28), 60_000, 10_000)

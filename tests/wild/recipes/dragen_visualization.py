"""Make `lesson28-可视化/main.py` of dragen1860/TensorFlow-2.x-Tutorials run offline.

Random grey images in place of MNIST. The summaries of TensorBoard are not written, because they need its package.
"""

from pathlib import Path

from tests.wild.edits import call_instead, rename_keyword
from tests.wild.made_up import store_images, write_module

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 91  # line of the loop or function whose body is one step
CHANGES = [
    call_instead("load_data", '__import__("stored").load', '"mnist.npz"'),
    rename_keyword("Adam", "lr", "learning_rate"),
    call_instead("scalar", '__import__("summaries").ignore'),
    call_instead("image", '__import__("summaries").ignore'),
]
SUMMARIES = '''
    """The functions of TensorBoard that the script calls."""


    def ignore(*arguments, **options):
        """Write no summary."""
'''


def prepare(folder: Path) -> None:
    write_module(folder, "summaries", SUMMARIES)
    store_images(folder, "mnist.npz", (28, 28), 60_000, 10_000)

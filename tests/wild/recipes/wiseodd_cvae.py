"""Make `VAE/conditional_vae/cvae_pytorch.py` of wiseodd/generative-models run offline.

Random grey images in place of MNIST, and fewer steps.

A module takes the place of the reader of MNIST in TensorFlow 1.
"""

from pathlib import Path

from tests.wild.edits import call_item, import_instead, set_range
from tests.wild.made_up import store_images, write_module

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = 77  # line of the loop or function whose body is one step
CHANGES = [import_instead("input_data", "import input_data"), call_item("data"), set_range("it", 40_000)]
INPUT_DATA = '''
    """Made-up data with the interface of the module of this name in TensorFlow 1."""

    from types import SimpleNamespace

    import numpy as np
    import stored


    class Digits:
        """Images and labels, which `next_batch` returns in a new order in each epoch."""

        def __init__(self, images, labels):
            self.images = images.reshape(len(images), -1).astype(np.float32) / 255
            self.labels = np.eye(10)[labels]
            self._next = 0

        def next_batch(self, count):
            if self._next + count > len(self.images) or not self._next:
                order = np.random.permutation(len(self.images))
                self.images, self.labels, self._next = self.images[order], self.labels[order], 0
            rows = slice(self._next, self._next + count)
            self._next += count
            return self.images[rows], self.labels[rows]


    def read_data_sets(folder, one_hot):
        train, test = stored.load("mnist.npz")
        return SimpleNamespace(train=Digits(*train), test=Digits(*test))
'''


def prepare(folder: Path) -> None:
    write_module(folder, "input_data", INPUT_DATA)
    store_images(folder, "mnist.npz", (28, 28), 20_000, 64)

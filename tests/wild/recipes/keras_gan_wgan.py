"""Make `wgan/wgan.py` of eriklindernoren/Keras-GAN run offline.

Random grey images in place of MNIST, and fewer steps, with the interface of Keras 3.

Keras 3 does not train the critic, because the script freezes it before its first step.
"""

from pathlib import Path

from tests.wild.edits import call_instead, import_instead, rename_keyword
from tests.wild.made_up import store_images

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"epochs": "200"}
STEP: int | str = 127  # line of the loop or function whose body is one step
CHANGES = [
    call_instead("load_data", '__import__("stored").load', '"mnist.npz"'),
    import_instead("LeakyReLU", "from keras.layers import LeakyReLU"),
    import_instead("UpSampling2D", "from keras.layers import UpSampling2D, Conv2D"),
    import_instead("K", "from tensorflow.keras import backend as K"),
    rename_keyword("RMSprop", "lr", "learning_rate"),
]


def prepare(folder: Path) -> None:
    store_images(folder, "mnist.npz", (28, 28), 20_000, 64)
    (folder / "images").mkdir()

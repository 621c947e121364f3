"""Make `context_encoder/context_encoder.py` of eriklindernoren/Keras-GAN run offline.

Random colour images in place of CIFAR-10, and fewer steps. The recipe adapts imports to Keras 3.

Keras 3 does not train the discriminator, because the script freezes it before its first step.
"""

from pathlib import Path

from tests.wild.edits import call_instead, import_instead
from tests.wild.made_up import store_images

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"epochs": "1000"}
STEP: int | str = 158  # line of the loop or function whose body is one step
CHANGES = [
    call_instead("load_data", '__import__("stored").load', '"cifar10.npz"'),
    import_instead("LeakyReLU", "from keras.layers import LeakyReLU"),
    import_instead("UpSampling2D", "from keras.layers import UpSampling2D, Conv2D"),
]


def prepare(folder: Path) -> None:
    store_images(folder, "cifar10.npz", (32, 32, 3), 50_000, 64)
    (folder / "images").mkdir()

"""Make `examples/mnist.py` of google-deepmind/dm-haiku run offline.

Random grey images in place of MNIST, a sixth of the original number, and fewer steps.

A module takes the place of `tensorflow_datasets`, which would download MNIST. Like that package, it reads encoded
images with `tf.data`, decodes them, keeps them in memory, and reads ahead.
"""

import io
import pickle
from pathlib import Path

from PIL import Image
from tests.wild.edits import set_range
from tests.wild.made_up import numbers, write_module

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}  # JAX needs the memory of the device
SETTINGS: dict[str, str] = {}
STEP: int | str = 122  # line of the loop or function whose body is one step
CHANGES = [set_range("step", 301)]
DISTINCT = 1000  # number of different images
DATASETS = '''
    """Made-up data in place of the package of this name."""

    import pickle
    from types import SimpleNamespace

    import tensorflow as tf


    def load(name, *, split, with_info):
        """Return a dataset of images and labels, and how many there are."""
        with open(name.partition(":")[0] + ".pickle", "rb") as file:
            stored = pickle.load(file)
        encoded, labels = stored[split]
        dataset = tf.data.Dataset.from_tensor_slices((encoded, tf.constant(labels, tf.int64)))
        dataset = dataset.map(_decode, num_parallel_calls=tf.data.AUTOTUNE)
        splits = {key: SimpleNamespace(num_examples=len(value[1])) for key, value in stored.items()}
        return dataset.cache().prefetch(tf.data.AUTOTUNE), SimpleNamespace(splits=splits)


    def as_numpy(dataset):
        """Yield the elements with arrays in place of tensors."""
        for element in dataset:
            yield tf.nest.map_structure(lambda tensor: tensor.numpy(), element)


    def _decode(encoded, label):
        image = tf.io.decode_png(encoded, channels=1)
        return {"image": tf.ensure_shape(image, (28, 28, 1)), "label": label}
'''


def prepare(folder: Path) -> None:
    write_module(folder, "tensorflow_datasets", DATASETS)
    images = [_encode(pixels) for pixels in numbers().integers(0, 256, (DISTINCT, 28, 28), dtype="uint8")]
    parts = {"train": 10_000, "test": 1000}
    stored = {
        part: ([images[index % DISTINCT] for index in range(count)], [index % 10 for index in range(count)])
        for part, count in parts.items()
    }
    (folder / "mnist.pickle").write_bytes(pickle.dumps(stored))


def _encode(pixels: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()

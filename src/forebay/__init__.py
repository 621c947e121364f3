"""Forebay feeds TensorFlow, Keras, PyTorch and JAX from NumPy.

import forebay as fb
for batch in fb.from_arrays({"image": x, "label": y}).shuffle(seed=0).batch(256).feed("tensorflow"):
    train(batch["image"], batch["label"])
"""

from forebay.errors import ForebayError
from forebay.pipeline import Pipeline, from_arrays, from_batches, from_files, from_generator, from_source
from forebay.spec import ArraySpec
from forebay.transforms import cast, one_hot, scale

__all__ = [
    "ArraySpec",
    "ForebayError",
    "Pipeline",
    "__version__",
    "cast",
    "from_arrays",
    "from_batches",
    "from_files",
    "from_generator",
    "from_source",
    "one_hot",
    "scale",
]

__version__ = "0.1.0"

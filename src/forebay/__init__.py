"""Forebay feeds TensorFlow, Keras, PyTorch and JAX from NumPy.

import forebay as fb
for batch in fb.from_arrays({"image": x, "label": y}).shuffle(seed=0).batch(256).feed("tensorflow"):
    train(batch["image"], batch["label"])
"""

from forebay.errors import ForebayError
from forebay.finite import all_finite
from forebay.pipeline import Pipeline, from_arrays, from_batches, from_files, from_generator, from_source
from forebay.readback import Readback
from forebay.spec import ArraySpec
from forebay.transforms import cast, one_hot, scale
from forebay.upload import forget, upload_once

__all__ = [
    "ArraySpec",
    "ForebayError",
    "Pipeline",
    "Readback",
    "__version__",
    "all_finite",
    "cast",
    "forget",
    "from_arrays",
    "from_batches",
    "from_files",
    "from_generator",
    "from_source",
    "one_hot",
    "scale",
    "upload_once",
]

__version__ = "0.1.0"

"""Forebay feeds batches of rows to training loops of TensorFlow, Keras, PyTorch, JAX and CuPy.

A row is one sample, stored in arrays, files or an object store. This example reads rows of two NumPy arrays:

import forebay as fb
for batch in fb.from_arrays({"image": x, "label": y}).shuffle(seed=0).batch(256).feed("tensorflow"):
    train(batch["image"], batch["label"])
"""

import sys as _sys
import typing as _typing

from forebay.adapters.readback.readback import Readback, all_finite
from forebay.adapters.upload.upload_once import forget, upload_once
from forebay.core.ragged import Ragged
from forebay.core.spec import ArraySpec
from forebay.errors import ForebayError
from forebay.pipeline.combine import concat, interleave, zip_rows
from forebay.pipeline.constructors import (
    from_arrays,
    from_batches,
    from_files,
    from_frame,
    from_generator,
    from_ragged,
    from_source,
)
from forebay.pipeline.familiar_words import reject_attribute as _reject_attribute
from forebay.pipeline.image_constructor import from_images
from forebay.pipeline.pipeline import Pipeline
from forebay.transforms.augmentations import flip, normalize
from forebay.transforms.center_crop import center_crop
from forebay.transforms.color_jitter import color_jitter
from forebay.transforms.ops import cast, one_hot, scale
from forebay.transforms.resized_crop import random_resized_crop

__all__ = [
    "ArraySpec",
    "ForebayError",
    "Pipeline",
    "Ragged",
    "Readback",
    "__version__",
    "all_finite",
    "cast",
    "center_crop",
    "color_jitter",
    "concat",
    "flip",
    "forget",
    "from_arrays",
    "from_batches",
    "from_files",
    "from_frame",
    "from_generator",
    "from_images",
    "from_ragged",
    "from_source",
    "interleave",
    "normalize",
    "one_hot",
    "random_resized_crop",
    "scale",
    "upload_once",
    "zip_rows",
]

__version__ = "0.2.0.dev0"

if not _typing.TYPE_CHECKING:  # a type checker that sees `__getattr__` would accept every name

    def __getattr__(name: str) -> _typing.Any:
        """Raise AttributeError. Its message says which name to use, if Forebay has a similar one."""
        return _reject_attribute(_sys.modules[__name__], name, "module 'forebay'")

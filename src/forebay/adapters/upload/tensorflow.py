"""Uploads that are asked for while TensorFlow traces a function: made outside of it, as for everybody else."""

from typing import Any

import tensorflow as tf

from forebay.adapters.upload.uploaders import Uploader
from forebay.core.spec import Array

__all__ = ["OutsideFunctions"]


class OutsideFunctions:
    """Uploads as another does, in eager mode: inside a function there is no memory yet, only a graph."""

    def __init__(self, uploader: Uploader) -> None:
        self._uploader = uploader

    def upload(self, array: Array) -> Any:
        with tf.init_scope():
            return self._uploader.upload(array)

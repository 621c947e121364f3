"""The uploader for arrays that are uploaded while TensorFlow traces a tf.function."""

from typing import Any

import tensorflow as tf

from forebay.adapters.upload.uploaders import Uploader
from forebay.core.spec import Array

__all__ = ["EagerScopeUploader"]


class EagerScopeUploader:
    """Calls an uploader in eager mode, because tensors of a traced function have no memory."""

    def __init__(self, uploader: Uploader) -> None:
        self._uploader = uploader

    def upload(self, array: Array) -> Any:
        with tf.init_scope():
            return self._uploader.upload(array)

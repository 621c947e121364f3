"""The uploader for arrays that are uploaded while JAX traces a function."""

from typing import Any

import jax

from forebay.adapters.upload.uploaders import Uploader
from forebay.core.spec import Array

__all__ = ["UntracedUploader"]


class UntracedUploader:
    """Calls an uploader outside of JAX's trace, so that the result has memory."""

    def __init__(self, uploader: Uploader) -> None:
        self._uploader = uploader

    def upload(self, array: Array) -> Any:
        with jax.ensure_compile_time_eval():
            return self._uploader.upload(array)

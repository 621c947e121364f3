"""Arrays and lists that become eager tensors, by whichever public function: all of them end in one conversion."""

from functools import partial
from typing import Any

import numpy as np
from tensorflow.python.framework import constant_op

from forebay.doctor.capture.hooks.calls import Call, watch_call
from forebay.doctor.capture.hooks.tensorflow.public_names import asked
from forebay.doctor.capture.hooks.tensorflow.tensors import (
    EagerTensor,
    about,
    element_of,
    key_of_array,
    nbytes_of,
)
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import Kind

__all__ = ["watch_uploads"]

API = "tf.convert_to_tensor"
_ASKED_FOR = frozenset({API, "tf.constant", "tf.cast", "tf.Variable", "tf.identity", "tf.function"})


def watch_uploads(patches: Patches) -> None:
    then = partial(_converted, patches)
    watch_call(patches, constant_op, "convert_to_eager_tensor", api=API, then=then, when=_is_data)


def _is_data(value: Any, *_: Any, **__: Any) -> bool:
    """Numbers by themselves are no data: TensorFlow keeps those it has converted before."""
    return isinstance(value, np.ndarray | list | tuple)


def _converted(patches: Patches, call: Call) -> None:
    value, tensor, ledger = call.args[0], call.result, patches.ledger
    line = ledger.lines.here()
    if line < 0 or type(tensor) is not EagerTensor:
        return
    api, directly = asked(ledger.lines, API)
    nbytes = nbytes_of(tensor)
    asked_for = directly and api in _ASKED_FOR
    if not nbytes or (element_of(tensor._datatype_enum()).counts_with(nbytes) and not asked_for):
        return
    patches.spoken[api] = API
    before = value.dtype.name if isinstance(value, np.ndarray) else type(value).__name__
    detail = about(tensor) | {"from_dtype": before, "key": key_of_array(value)}
    ledger.add(Kind.UPLOAD, api, call.start, end=call.end, nbytes=nbytes, detail=detail, line=line)

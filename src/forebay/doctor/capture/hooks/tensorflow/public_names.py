"""Finds the public TensorFlow function that a user line called, from the stack."""

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tensorflow.python.util import tf_decorator

from forebay.doctor.capture.source_lines import SourceLines

__all__ = ["PublicCall", "find_public_call"]

_OURS = str(Path(__file__).parents[2])  # the folder of all hooks
MAX_DIRECT_FRAMES = 4  # TensorFlow wraps each public function in a few frames

_METHODS = {
    "Function.__call__": "tf.function",
    "VariableMetaclass.__call__": "tf.Variable",
    "BaseResourceVariable.assign": "Variable.assign",
    "BaseResourceVariable.assign_add": "Variable.assign_add",
    "BaseResourceVariable.assign_sub": "Variable.assign_sub",
    "Layer.__call__": "model(array)",
    "override_binary_operator_helper.<locals>.binary_op_wrapper": "tf.convert_to_tensor",  # tensor + array
    "override_binary_operator_helper.<locals>.r_binary_op_wrapper": "tf.convert_to_tensor",
}

_names: dict[CodeType, str | None] = {}  # cache


class PublicCall(NamedTuple):
    """A public function that a user line called."""

    name: str
    is_direct: bool  # the function itself did the work, not a function deep inside it


# Cache by instruction of the user code and called code; the references keep the code at its address.
_calls: dict[tuple[int, int, int, str], tuple[PublicCall, CodeType, CodeType]] = {}


def find_public_call(lines: SourceLines, default: str) -> PublicCall:
    """Return the outermost public function between the user line and the caller, or `default`."""
    here = called = sys._getframe(1)
    frame: FrameType | None = here
    while frame is not None and not lines.is_user_file.get(frame.f_code.co_filename):
        called, frame = frame, frame.f_back
    if frame is None:
        return PublicCall(default, is_direct=False)
    code = frame.f_code
    key = id(code), frame.f_lasti, id(called.f_code), default
    if key not in _calls:
        _calls[key] = _search_frames(frame, here, default), code, called.f_code
    return _calls[key][0]


def _search_frames(outer: FrameType, inner: FrameType | None, default: str) -> PublicCall:
    frames: list[FrameType] = []
    while inner is not None and inner is not outer:
        if not inner.f_code.co_filename.startswith(_OURS):
            frames.append(inner)
        inner = inner.f_back
    for depth, frame in enumerate(reversed(frames)):
        code = frame.f_code
        if code not in _names:
            _names[code] = _public_name(frame)
        if name := _names[code]:
            return PublicCall(name, depth < MAX_DIRECT_FRAMES)
    return PublicCall(default, not frames)


def _public_name(frame: FrameType) -> str | None:
    code = frame.f_code
    owner, _, method = code.co_qualname.rpartition(".")
    if owner == "DatasetV2":
        return f"Dataset.{method}"
    if owner.endswith("Trainer") and not method.startswith("_"):
        return f"Model.{method}"
    if frame.f_globals.get("__name__", "").startswith("keras.src.ops"):
        return f"keras.ops.{code.co_name}"
    return _METHODS.get(code.co_qualname) or _exported_name(frame.f_globals.get(code.co_name))


def _exported_name(function: Any) -> str | None:
    """Return the shortest name that TensorFlow exports a function by, which is the usual one."""
    if not callable(function):
        return None
    names = getattr(tf_decorator.unwrap(function)[1], "_tf_api_names", ())
    written = [name for name in names if not name.startswith("__")]  # names of operators
    return f"tf.{min(written, key=len)}" if written else None

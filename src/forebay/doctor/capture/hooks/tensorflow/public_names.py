"""Finds the public TensorFlow or Keras function on the stack that the script called."""

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tensorflow.python.util import tf_decorator

from forebay.doctor.capture.source_lines import SourceLines

__all__ = ["PublicCall", "find_public_call"]

_CAPTURE_FOLDER = str(Path(__file__).parents[2])  # the search skips frames of hooks
MAX_DIRECT_FRAMES = 4  # of a direct call; TensorFlow wraps each public function in a few frames

_METHODS = {  # qualified name in the source -> public name
    "Function.__call__": "tf.function",
    "VariableMetaclass.__call__": "tf.Variable",
    "BaseResourceVariable.assign": "Variable.assign",
    "BaseResourceVariable.assign_add": "Variable.assign_add",
    "BaseResourceVariable.assign_sub": "Variable.assign_sub",
    "Layer.__call__": "model(array)",
    # Operators with an array as an operand, as in `tensor + array`.
    "override_binary_operator_helper.<locals>.binary_op_wrapper": "tf.convert_to_tensor",
    "override_binary_operator_helper.<locals>.r_binary_op_wrapper": "tf.convert_to_tensor",
}
_OPERATOR_WRAPPERS = frozenset(name for name in _METHODS if name.endswith("binary_op_wrapper"))

_public_names: dict[CodeType, str | None] = {}  # cache; None: the function is not public


class PublicCall(NamedTuple):
    """A public function that a line of the script called."""

    name: str
    is_direct: bool  # at most a few frames of wrappers are between the line of the script and this function
    is_operator: bool = False  # the line has an operator instead of a call, such as `tensor + array`


# Cache. Key: id of the user code, offset of its instruction, id of the called code, default name. The values also hold
# both code objects, so that Python does not reuse their ids.
_public_calls: dict[tuple[int, int, int, str], tuple[PublicCall, CodeType, CodeType]] = {}


def find_public_call(lines: SourceLines, default: str) -> PublicCall:
    """Return the outermost public function between the script and the caller, or `default`."""
    here = called = sys._getframe(1)
    frame: FrameType | None = here
    while frame is not None and not lines.user_file_cache.get(frame.f_code.co_filename):
        called, frame = frame, frame.f_back
    if frame is None:
        return PublicCall(default, is_direct=False)
    code = frame.f_code
    key = id(code), frame.f_lasti, id(called.f_code), default
    if key not in _public_calls:
        _public_calls[key] = _search_frames(frame, here, default), code, called.f_code
    return _public_calls[key][0]


def _search_frames(outer: FrameType, inner: FrameType | None, default: str) -> PublicCall:
    """Return the first public function that `outer` called on the way to `inner`, or `default`."""
    frames: list[FrameType] = []
    while inner is not None and inner is not outer:
        if not inner.f_code.co_filename.startswith(_CAPTURE_FOLDER):
            frames.append(inner)
        inner = inner.f_back
    for depth, frame in enumerate(reversed(frames)):
        code = frame.f_code
        if code not in _public_names:
            _public_names[code] = _public_name(frame)
        if name := _public_names[code]:
            return PublicCall(name, depth < MAX_DIRECT_FRAMES, code.co_qualname in _OPERATOR_WRAPPERS)
    return PublicCall(default, not frames)


def _public_name(frame: FrameType) -> str | None:
    """Return the public name of a frame's function; None if the function is not public."""
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
    """Return the shortest name under which TensorFlow exports a function; None if there is none."""
    if not callable(function):
        return None
    names = getattr(tf_decorator.unwrap(function)[1], "_tf_api_names", ())
    names = [name for name in names if not name.startswith("__")]  # without operators such as `__operators__.add`
    return f"tf.{min(names, key=len)}" if names else None

"""What the user would call it: the public name of the function that a line of theirs called, found on the stack."""

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tensorflow.python.util import tf_decorator

from forebay.doctor.capture.source_lines import Lines

__all__ = ["Asked", "asked"]

_OURS = str(Path(__file__).parents[2])  # all that watches
NEAR = 4  # frames: a function, under what TensorFlow puts around each

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

_names: dict[CodeType, str | None] = {}  # of code that was met before


class Asked(NamedTuple):
    """Which public function a line of the user's called, and whether what came of it is that function's own work."""

    name: str
    directly: bool


# By the place in the user's code, and what was called from there: the same instruction mostly asks for the same.
_asked: dict[tuple[int, int, int, str], tuple[Asked, CodeType, CodeType]] = {}  # which keeps the code at its address


def asked(lines: Lines, default: str) -> Asked:
    """The outermost public function between the user's line and here; `default` where the line called none."""
    here = called = sys._getframe(1)
    frame: FrameType | None = here
    while frame is not None and not lines.users.get(frame.f_code.co_filename):
        called, frame = frame, frame.f_back
    if frame is None:
        return Asked(default, directly=False)
    code = frame.f_code
    place = id(code), frame.f_lasti, id(called.f_code), default
    if place not in _asked:
        _asked[place] = _between(frame, here, default), code, called.f_code
    return _asked[place][0]


def _between(outer: FrameType, inner: FrameType | None, default: str) -> Asked:
    below: list[FrameType] = []
    while inner is not None and inner is not outer:
        if not inner.f_code.co_filename.startswith(_OURS):
            below.append(inner)
        inner = inner.f_back
    for depth, frame in enumerate(reversed(below)):
        code = frame.f_code
        if code not in _names:
            _names[code] = _name(frame)
        if name := _names[code]:
            return Asked(name, depth < NEAR)
    return Asked(default, not below)


def _name(frame: FrameType) -> str | None:
    code = frame.f_code
    owner, _, method = code.co_qualname.rpartition(".")
    if owner == "DatasetV2":
        return f"Dataset.{method}"
    if owner.endswith("Trainer") and not method.startswith("_"):
        return f"Model.{method}"
    if frame.f_globals.get("__name__", "").startswith("keras.src.ops"):
        return f"keras.ops.{code.co_name}"
    return _METHODS.get(code.co_qualname) or _exported(frame.f_globals.get(code.co_name))


def _exported(function: Any) -> str | None:
    """The name TensorFlow exports a function by; the shortest, which is the one people write."""
    if not callable(function):
        return None
    names = getattr(tf_decorator.unwrap(function)[1], "_tf_api_names", ())
    written = [name for name in names if not name.startswith("__")]  # not those of operators
    return f"tf.{min(written, key=len)}" if written else None

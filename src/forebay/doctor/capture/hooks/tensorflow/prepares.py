"""The user's Python inside a pipeline: `tf.py_function`, `tf.numpy_function` and generators, on whatever thread."""

import inspect
from functools import partial
from typing import Any

from forebay.doctor.capture.hooks.preparing import Part, prepare
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches

__all__ = ["watch_prepares"]

API = "tf.py_function"
_GENERATOR = "generator_py_func"  # TensorFlow's own function around a generator of the user's
_HOLDS_GENERATOR = "generator_state"


def watch_prepares(patches: Patches, registry: Any) -> None:
    """The registry is where TensorFlow comes to call Python."""
    ledger = patches.ledger

    def make(original: Any) -> Any:
        def hook(functions: Any, token: Any, device: Any, args: Any) -> Any:
            about = partial(_about, ledger, functions, token)
            return prepare(ledger, about, original, functions, token, device, args)

        return hook

    patches.replace(registry, "__call__", make, api=API)


def _about(ledger: Ledger, functions: Any, token: Any) -> Part:
    function, what = _function_of(functions.get(token))
    api = "Dataset.from_generator" if what == "generator" else API
    return Part(api, ledger.lines.of_code(function), what)


def _function_of(registered: Any) -> tuple[Any, str]:
    """What the user wrote, under all that was put around it."""
    function = inspect.unwrap(getattr(registered, "_func", registered))
    if getattr(function, "__name__", "") != _GENERATOR:
        return _innermost(function), "map"
    names, cells = function.__code__.co_freevars, function.__closure__
    return _innermost(cells[names.index(_HOLDS_GENERATOR)].cell_contents._generator), "generator"


def _innermost(function: Any) -> Any:
    """A function of a partial, the method of an object that is called."""
    function = getattr(function, "func", function)
    return function if hasattr(function, "__code__") or hasattr(function, "__func__") else type(function).__call__

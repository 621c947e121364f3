"""Edits that let XLA compile the step of a TensorFlow script."""

import ast

from forebay.doctor.analyse.script_code import ScriptCode, last_name
from forebay.doctor.rules.called_code import keeps_old_values
from forebay.doctor.rules.compile_edits import stays_on_device, step_function
from forebay.doctor.rules.edits import Edit

__all__ = ["compile_with_xla", "has_recurrence", "supports_xla", "with_xla"]

# Operations that XLA cannot compile, or whose results have no constant shape.
_UNSUPPORTED = (
    *("boolean_mask", "unique", "where", "py_function", "numpy_function", "ragged", "RaggedTensor", "SparseTensor"),
    *("embedding_lookup_sparse", "non_max_suppression", "crop_and_resize", "ctc_loss", "ctc_decode", "Assert"),
    *("TextVectorization", "StringLookup", "IntegerLookup", "Hashing", "CategoryEncoding", "Discretization"),
    *("RandomRotation", "RandomZoom", "RandomTranslation", "RandomHeight", "RandomWidth"),
)
Function = ast.FunctionDef | ast.AsyncFunctionDef
_RECURRENT_LAYERS = (
    "LSTM",
    "GRU",
    "SimpleRNN",
    "RNN",
    "ConvLSTM1D",
    "ConvLSTM2D",
    "LSTMCell",
    "GRUCell",
    "Bidirectional",
)


def compile_with_xla(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edit that lets XLA compile the function of the step, or the `tf.function` that a loop calls."""
    function = step_function(code, number) or _called_tf_function(code, number)
    statement = code.statement_at(number)
    if function is None and statement is not None and not code.loops_around(statement):
        function = code.function_around(statement)
    if function is None or not supports_xla(code):
        return []
    decorator = _tf_decorator(function)
    if decorator is None:
        can_start = not function.decorator_list and stays_on_device(function)
        name = f"{code.module_alias('tensorflow', 'tf')}.function(jit_compile=True)"
        return [Edit.before(function, f"@{name}")] if can_start and not keeps_old_values(code, function) else []
    if not isinstance(decorator, ast.Call):
        text = f"@{code.text(decorator)}(jit_compile=True)"
    elif any(keyword.arg == "jit_compile" for keyword in decorator.keywords):
        return []
    else:
        text = f"@{code.rewrite(decorator, code.set_keyword(decorator, 'jit_compile', 'True'))}"
    return [Edit("instead", decorator.lineno, decorator.end_lineno or decorator.lineno, text)]


def _called_tf_function(code: ScriptCode, number: int) -> Function | None:
    """Return the only `tf.function` of the script that a statement calls, which may be a loop; None without one."""
    statement = code.statement_at(number)
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)] if statement is not None else []
    called = {code.function(last_name(call)) for call in calls}
    found = [function for function in called if function is not None and _tf_decorator(function) is not None]
    return found[0] if len(found) == 1 else None


def _tf_decorator(function: Function) -> ast.expr | None:
    """Return the decorator `@tf.function` of a function; None without one."""
    return next((node for node in function.decorator_list if last_name(node) == "function"), None)


def has_recurrence(code: ScriptCode) -> bool:
    """Whether a script has recurrent layers, or loops of TensorFlow.

    XLA needs constant shapes inside of such loops. In a script with LSTM layers, it compiled again in every step.
    """
    return bool(code.calls(*_RECURRENT_LAYERS, "while_loop", "scan", "TensorArray"))


def supports_xla(code: ScriptCode) -> bool:
    """Whether XLA can compile all operations of a script well, as far as is known."""
    return not has_recurrence(code) and not code.calls(*_UNSUPPORTED)


def with_xla(text: str) -> str:
    """Return the code of a cure with XLA for the `tf.function` that it adds; "" if it adds none."""
    lines = text.split("\n")
    added = [line for line in lines if line.endswith(".function") and line.startswith("@")]
    if len(added) != 1:
        return ""
    return "\n".join(f"{line}(jit_compile=True)" if line in added else line for line in lines)

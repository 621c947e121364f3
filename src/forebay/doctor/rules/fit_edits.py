"""The edit that gives a Keras `fit` a feed of its arrays."""

import ast

from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.rules.edits import Edit, import_lines
from forebay.doctor.rules.input_edits import call_at, is_array_text, patch_statement, resolve, tree_text

__all__ = ["feed_of_fit"]

# Parameters of `fit` in their order, as in Keras 3.
_PARAMETERS = (
    *("x", "y", "batch_size", "epochs", "verbose", "callbacks", "validation_split", "validation_data", "shuffle"),
    *("class_weight", "sample_weight", "initial_epoch", "steps_per_epoch", "validation_steps"),
    *("validation_batch_size", "validation_freq"),
)
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_DATA = ("x", "y", "sample_weight")
_REPLACED = (*_DATA, "batch_size", "shuffle", "validation_split")  # parameters that a feed replaces


def feed_of_fit(code: ScriptCode, number: int, batch_rows: int) -> list[Edit]:
    """Return the edits that let a feed prefetch the arrays of a Keras `fit`."""
    call = call_at(code, number, "fit")
    arguments = _arguments(call) if call is not None and not code.loops_around(call) else None
    if call is None or arguments is None or hasattr(code.statement_of(call), "body") or _runs_later(code, call):
        return []
    data = [arguments[name] for name in _DATA if name in arguments]
    is_known = "x" in arguments and ("y" in arguments or "sample_weight" not in arguments)
    is_known = is_known and "steps_per_epoch" not in arguments and all(map(is_array_text, data))
    shuffle = _constant(code, arguments.get("shuffle"), True)
    split = _constant(code, arguments.get("validation_split"), 0)
    is_split = bool(split) and "validation_data" not in arguments  # Keras prefers validation data to a split
    is_nested = not all(isinstance(part, ast.Name | ast.Attribute) for part in data)
    if not is_known or not isinstance(shuffle, bool) or split is ... or (is_split and is_nested):
        return []
    lines, texts = import_lines(code), [tree_text(code, part) for part in data]
    rest = [f"{name}={code.text(node)}" for name, node in arguments.items() if name not in _REPLACED]
    if is_split:
        end = code.new_name("split")
        lines.append(f"{end} = int(len({texts[0]}) * (1 - {code.text(arguments['validation_split'])}))")
        rest.append(f"validation_data=({', '.join(f'{text}[{end}:]' for text in texts)})")
        texts = [f"{text}[:{end}]" for text in texts]
    size = arguments.get("batch_size")
    rows = code.text(size) if size is not None and _constant(code, size, 0) is not None else str(batch_rows)
    tree = f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    name, order = code.new_name("feed"), ".shuffle(seed=0)" if shuffle else ""
    lines.append(f'{name} = fb.from_arrays({tree}){order}.batch({rows}).feed("keras")')
    new_call = f"{code.text(call.func)}({', '.join([name, *rest])})"
    statement = code.statement_of(call)
    return [Edit.before(statement, *lines), *patch_statement(code, statement, code.replace(call, new_call))]


def _runs_later(code: ScriptCode, call: ast.Call) -> bool:
    """Whether a call is in a lambda or comprehension, whose names its statement does not know."""
    return any(isinstance(node, ast.Lambda | _COMPREHENSIONS) for node in code.ancestors(call))


def _arguments(call: ast.Call) -> dict[str, ast.expr] | None:
    """Return the arguments of a `fit` by name, without those that are None.

    Return None if the names of some arguments are unknown.
    """
    is_unpacked = any(isinstance(argument, ast.Starred) for argument in call.args)
    if is_unpacked or len(call.args) > len(_PARAMETERS) or any(keyword.arg is None for keyword in call.keywords):
        return None
    arguments = dict(zip(_PARAMETERS, call.args, strict=False))
    arguments |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    return {
        name: node for name, node in arguments.items() if not (isinstance(node, ast.Constant) and node.value is None)
    }


def _constant(code: ScriptCode, node: ast.expr | None, default: int) -> object:
    """Return the constant value of an argument, `default` without the argument, or `...` if unknown."""
    value = resolve(code, node) if node is not None else ast.Constant(default)
    return value.value if isinstance(value, ast.Constant) else ...

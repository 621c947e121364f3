"""Edits that keep an operation and its data on one device."""

import ast

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.loop_code import is_invariant
from forebay.doctor.analyse.script_code import ScriptCode, last_name, names_in, own_nodes
from forebay.doctor.rules.called_code import changed_by_functions
from forebay.doctor.rules.edits import Edit
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.input_edits import patch_statement

__all__ = ["fit_placement", "shorten_device"]

_NO_KERNEL = (
    "# Line {number} is inside of `{scope}`, but TensorFlow runs {op} on {target}: it has no kernel for this dtype\n"
    "# on the other device, often for int32 or strings. Cast its input, for example: tf.cast(x, tf.int64)"
)


def fit_placement(view: CaptureView, site: CallSite, framework: str) -> str:
    """Return code that keeps an operation on the device of its data.

    If TensorFlow has no kernel for the operation on that device, the code is a comment that says so. The text is empty
    if the code at the line has a form for which there is no edit.
    """
    if framework != "tensorflow":
        return fit_line(view, site.line, _move_before_loop)
    target = str(next((name for name in site.values("target") if name), ""))
    source = str(next((name for name in site.values("source") if name), ""))
    operation = str(next((name for name in site.values("op") if name), site.api))
    notes: list[str] = []

    def make_edits(code: ScriptCode, number: int) -> list[Edit]:
        statement = code.statement_at(number)
        scope = code.device_scope(statement) if statement is not None else None
        if scope is None:
            return []
        if _requests_device(scope, target):
            return _change_scope(code, scope, source)
        notes.append(
            _NO_KERNEL.format(
                number=number, scope=_scope_text(code, scope), op=operation, target=shorten_device(target)
            )
        )
        return []

    return fit_line(view, site.line, make_edits) or "".join(notes[:1])


def shorten_device(device: str) -> str:
    """Shorten `/job:localhost/replica:0/task:0/device:GPU:0` and `/GPU:0` to GPU:0."""
    return device.rsplit("device:", 1)[-1].removeprefix("/")


def _requests_device(scope: ast.With, target: str) -> bool:
    """Whether a `with tf.device(...)` names the device `target`, to which the data moves."""
    call = next(item.context_expr for item in scope.items if last_name(item.context_expr) == "device")
    argument = call.args[0] if isinstance(call, ast.Call) and call.args else None
    if isinstance(argument, ast.Constant):
        return shorten_device(str(argument.value)).upper() == shorten_device(target).upper()
    return False


def _change_scope(code: ScriptCode, scope: ast.With, source: str) -> list[Edit]:
    """Return the edit that lets a `with tf.device(...)` name the device of the data."""
    call = next(item.context_expr for item in scope.items if last_name(item.context_expr) == "device")
    if not isinstance(call, ast.Call) or not source:
        return []
    return patch_statement(code, scope, code.replace(call.args[0], f'"/{shorten_device(source)}"'))


def _scope_text(code: ScriptCode, scope: ast.With) -> str:
    return (code.rewrite_header(scope) or "with tf.device(...):").removesuffix(":")


def _move_before_loop(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that move constant data to its device once, before the loop."""
    statement = code.statement_at(number)
    loops = code.loops_around(statement) if statement is not None else []
    if statement is None or not loops:
        return []
    for node in own_nodes(statement):
        is_move = isinstance(node, ast.Call) and last_name(node) in ("device_put", "to", "cuda")
        if isinstance(node, ast.Call) and is_move and is_invariant(node, loops[-1]):
            data = node.func.value if last_name(node) != "device_put" and isinstance(node.func, ast.Attribute) else None
            data = data or (node.args[0] if node.args else None)
            if isinstance(data, ast.Name) and not _may_change(code, data.id, loops[-1]):
                name = data.id if _is_only_moved(code, data, node) else code.new_name(f"{data.id}_on_device")
                move = Edit.before(loops[-1], f"{name} = {code.text(node)}")
                return [move, *patch_statement(code, statement, code.replace(node, name))]
    return []


def _may_change(code: ScriptCode, name: str, loop: ast.stmt) -> bool:
    """Whether a function of the script changes a tensor in a loop, or an optimizer may train it."""
    value = code.value_of(name)
    parts = [*ast.walk(value)] if value is not None else []
    is_trained = any(isinstance(part, ast.keyword) and part.arg == "requires_grad" for part in parts)
    is_trained = is_trained or any(last_name(part) in ("Parameter", "requires_grad_") for part in parts)
    return is_trained or name in changed_by_functions(code, names_in(loop))


def _is_only_moved(code: ScriptCode, data: ast.Name, move: ast.Call) -> bool:
    """Whether the script reads a name only in `move`.

    The name can then refer to the moved data.
    """
    inside = {*ast.walk(move)}
    uses = [node for node in code.parents if isinstance(node, ast.Name) and node.id == data.id]
    return all(node in inside or isinstance(node.ctx, ast.Store) for node in uses)

"""Edits that let a background thread run the script's calls of `torch.save`."""

import ast

from forebay.doctor.analyse.loop_code import step_loop
from forebay.doctor.analyse.script_code import Patch, ScriptCode, last_name, names_in, root_name
from forebay.doctor.rules.edits import Edit, module_import, outermost_definition
from forebay.doctor.rules.input_edits import resolve

__all__ = ["save_in_thread"]


def save_in_thread(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that copy the state, and let a thread write the copy.

    The next save waits for this thread. The list is empty if line `number` is no plain call of `torch.save`, or if the
    script uses the file after the call.
    """
    statement = code.statement_at(number)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if statement is None or not isinstance(call, ast.Call) or not _is_torch_save(call):
        return []
    state, path = _arguments(call)
    if state is None or path is None or _needs_file(code, statement, path):
        return []
    loops, loop = code.loops_around(statement), step_loop(code, statement)
    place, writers = loops[-1] if loops else outermost_definition(code, statement), code.new_name("writers")
    join = f"while {writers}:\n    {writers}.pop().join()"
    (copy, copy_lines), (threading, threading_lines) = module_import(code, "copy"), module_import(code, "threading")
    arguments = f"{copy}.deepcopy({code.rewrite(state, *_detached(code, state))}), {code.text(path)}"
    edits = [
        Edit.before(place, *copy_lines, *threading_lines, f"{writers} = []"),
        Edit.instead(
            statement,
            f"{join}   # the previous file is complete\n"
            f"{writers}.append({threading}.Thread(target={code.text(call.func)}, args=({arguments})))\n"
            f"{writers}[-1].start()",
        ),
    ]
    if loop is not None:
        edits.append(Edit.after_loop((code.loops_around(loop) or [loop])[-1], join))
    return edits


def _is_torch_save(call: ast.Call) -> bool:
    return last_name(call) == "save" and root_name(call.func) == "torch"


def _arguments(call: ast.Call) -> tuple[ast.expr | None, ast.expr | None]:
    """Return the state and the path that a call of `torch.save` gets.

    A missing argument is None. If the call has further arguments, both are None.
    """
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    if set(named) - {"obj", "f"} or any(isinstance(argument, ast.Starred) for argument in call.args):
        return None, None
    given = dict(zip(("obj", "f"), call.args, strict=False)) | named
    return given.get("obj"), given.get("f")


def _needs_file(code: ScriptCode, statement: ast.stmt, path: ast.expr) -> bool:
    """Whether the script uses, closes or deletes the file after the call has returned."""
    loops, function = code.loops_around(statement), code.function_around(statement)
    scope = function or (loops[-1] if loops else code.tree)
    around = [
        parent for parent in code.ancestors(statement) if isinstance(parent, ast.With) and parent in ast.walk(scope)
    ]
    opened = [item.optional_vars for parent in around for item in parent.items if item.optional_vars is not None]
    if names_in(path) & names_in(*opened) or last_name(resolve(code, path)) == "open":
        return True
    later = (
        node for node in ast.walk(scope) if getattr(node, "lineno", 0) > (statement.end_lineno or statement.lineno)
    )
    return any(ast.dump(node) == ast.dump(path) for node in later) or bool(code.calls("BytesIO"))


def _detached(code: ScriptCode, state: ast.expr) -> list[Patch]:
    """Return the changes that detach losses, because tensors with a history cannot be copied."""
    losses = {root_name(call.func) for call in code.calls("backward")}
    values = state.values if isinstance(state, ast.Dict) else [state]
    return [code.append(value, ".detach()") for value in values if isinstance(value, ast.Name) and value.id in losses]

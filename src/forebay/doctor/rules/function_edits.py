"""Edits for loops that get each batch from a function of the script.

For example, the loop contains `x, y = get_batch("train")`. Each edit function returns an empty list if the code at line
`number` has a form for which it knows no edit.
"""

import ast
import builtins
from collections.abc import Collection

from forebay.doctor.analyse.loop_code import conversions_in, names_changed_in_place
from forebay.doctor.analyse.script_code import FUNCTIONS, ScriptCode, last_name, names_in, root_name, stored_names
from forebay.doctor.rules.called_code import changed_by_functions, executed_lines, free_names
from forebay.doctor.rules.compile_edits import makes_generator
from forebay.doctor.rules.edits import Edit, argument_texts
from forebay.doctor.rules.input_edits import patch_statement

__all__ = ["called_objects", "prefetch_call", "stack_slices"]

Function = ast.FunctionDef | ast.AsyncFunctionDef


def prefetch_call(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that let a thread make the next batch during the step.

    Line `number` is in the function that makes a batch, or in a function that this one calls. The batch must not depend
    on what the loop changes. The functions must not change objects of other scopes, such as a buffer that they fill for
    each batch: the thread would fill the buffer while the loop uses the previous batch.
    """
    found = [each for each in code.statements if isinstance(each, ast.Assign) and _makes_batch(code, each, number)]
    if len(found) != 1 or not isinstance(found[0], ast.Assign) or not isinstance(found[0].value, ast.Call):
        return []
    statement, call = found[0], found[0].value
    loops = code.loops_around(statement)
    if statement not in loops[0].body or code.replace_in_lines(statement, "") is not None:
        return []
    submitted = ", ".join([code.text(call.func), *argument_texts(code, call)])
    targets = " = ".join(code.text(target) for target in statement.targets)
    maker, batch = code.new_name("maker"), code.new_name("next_batch")
    executor = code.imported_name("concurrent.futures", _EXECUTOR)
    imports = [] if executor else [f"from concurrent.futures import {_EXECUTOR}"]
    return [
        Edit.before(
            loops[-1], *imports, f"{maker} = {executor or _EXECUTOR}(1)", f"{batch} = {maker}.submit({submitted})"
        ),
        Edit.instead(statement, f"{targets} = {batch}.result()\n{batch} = {maker}.submit({submitted})"),
        Edit.after_loop(loops[-1], f"{maker}.shutdown()"),
    ]


def _makes_batch(code: ScriptCode, statement: ast.Assign, number: int) -> bool:
    """Whether a statement of a loop gets a batch that a thread could make earlier.

    It must call a function of the script that executes line `number` and uses nothing that the loop changes.
    """
    loops, call = code.loops_around(statement), statement.value
    if not loops or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return False
    function = code.function(call.func.id)
    if function is None or statement.lineno in executed_lines(code, [function]):
        return False
    lines = executed_lines(code, [function])
    functions = [each for each in code.statements if isinstance(each, FUNCTIONS) and each.lineno in lines]
    if any(_changes_shared_objects(each) for each in functions):
        return False
    used = names_in(*call.args, *call.keywords).union(*map(free_names, functions))
    is_lazy = any(isinstance(argument, ast.Starred) for argument in call.args) or makes_generator(function)
    changed = stored_names(loops[-1]) | names_changed_in_place(loops[-1]) | called_objects(code, loops[-1], lines)
    changed |= changed_by_functions(code, names_in(loops[-1]))
    has_context = code.device_scope(statement) is not None  # `with tf.device(...)` holds for one thread only
    return number in lines and not is_lazy and not has_context and not used & changed


def _changes_shared_objects(function: Function) -> bool:
    """Whether a function changes names or objects of other scopes, its arguments included.

    For example, `buffer[:] = rows` changes a global `buffer`. After `part = buffer[:8]`, so does `part += 1`.
    """
    if any(isinstance(node, ast.Global | ast.Nonlocal) for node in ast.walk(function)):
        return True
    shared = free_names(function) | {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    assignments = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
    for node in sorted(assignments, key=lambda node: node.lineno):
        if isinstance(node.value, ast.Name | ast.Subscript | ast.Attribute) and root_name(node.value) in shared:
            shared |= stored_names(*node.targets)
    return bool(names_changed_in_place(*function.body) & shared)


def called_objects(code: ScriptCode, loop: ast.stmt, lines: Collection[int] = ()) -> set[str]:
    """Return the names of objects that a loop may change by calls, except on `lines`.

    For example, `buffer.append(row)` may change `buffer`. Modules, builtins and functions of the script do not count.
    """
    executed = executed_lines(code, [loop]).difference(lines)
    calls = [node for node in code.parents if isinstance(node, ast.Call) and node.lineno in executed]
    imports = [node for node in code.statements if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}
    names = {root_name(call.func) for call in calls} - imported - {*dir(builtins)}
    return {name for name in names if code.function(name) is None}


def stack_slices(code: ScriptCode, number: int, dtype: str) -> list[Edit]:
    """Return the edits that stack slices of an array instead of slices of a list.

    The statement at line `number` converts a list of slices, such as `[data[i : i + n] for i in starts]`. It may copy
    each slice by `list(...)`, or by a comprehension that converts its numbers.
    """
    statement = code.statement_at(number)
    function = code.function_around(statement) if statement is not None else None
    if statement is None or function is None:
        return []
    calls = [call for call in code.calls(function.name) if code.loops_around(call)]
    found = [part for part in conversions_in(statement) if isinstance(part.data, ast.ListComp)]
    if len(found) != 1 or not calls or not isinstance(found[0].data, ast.ListComp):
        return []
    rows = found[0].data
    part = _slice_of(rows.elt)
    if part is None or not isinstance(part.value, ast.Name) or part.value.id not in free_names(function):
        return []
    array, numpy = code.new_name(f"{part.value.id}_array"), code.module_alias("numpy", "np")
    outer = code.loops_around(calls[0])[-1]
    has_one_scope = code.function_around(function) is code.function_around(outer)
    changed = stored_names(outer) | names_changed_in_place(outer) | called_objects(code, outer)
    changed |= changed_by_functions(code, names_in(outer))
    if function.lineno > outer.lineno or not has_one_scope or part.value.id in changed:
        return []
    if _may_run_before(code, function, outer):
        return []  # the array does not exist yet
    elements = code.rewrite(part, code.replace(part.value, array))
    stacked = f"{numpy}.stack({code.rewrite(rows, code.replace(rows.elt, elements))})"
    imports = [] if code.imports("numpy") else ["import numpy as np"]
    return [
        Edit.before(outer, *imports, f'{array} = {numpy}.asarray({part.value.id}, dtype="{dtype}")'),
        *patch_statement(code, statement, code.replace(rows, stacked)),
    ]


def _may_run_before(code: ScriptCode, function: Function, loop: ast.stmt, depth: int = 5) -> bool:
    """Whether a function may run before a loop.

    It may if code above the loop contains its name, or that of a caller. `depth` limits the chain of callers.
    """
    uses = [node for node in code.parents if isinstance(node, ast.Name) and node.id == function.name]
    for use in uses:
        user = code.function_around(use)
        if user is code.function_around(loop):
            if use.lineno < loop.lineno:
                return True
        elif user is not None and user is not function and (not depth or _may_run_before(code, user, loop, depth - 1)):
            return True
    return False


def _slice_of(node: ast.expr) -> ast.Subscript | None:
    """Return the slice that an expression copies; None if it copies no slice.

    For example, the slice of `[int(value) for value in data[a:b]]` is `data[a:b]`.
    """
    if isinstance(node, ast.Call) and last_name(node) in ("list", "tuple") and len(node.args) == 1:
        return _slice_of(node.args[0])
    if isinstance(node, ast.ListComp) and len(node.generators) == 1 and not node.generators[0].ifs:
        copied = node.elt.args[0] if _converts_number(node.elt) and isinstance(node.elt, ast.Call) else node.elt
        target = node.generators[0].target
        is_copied = isinstance(copied, ast.Name) and isinstance(target, ast.Name) and copied.id == target.id
        return _slice_of(node.generators[0].iter) if is_copied else None
    return node if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) else None


def _converts_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node) in ("int", "float") and len(node.args) == 1


_EXECUTOR = "ThreadPoolExecutor"

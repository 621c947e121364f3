"""Edits that let NumPy, not a framework, join a list of NumPy arrays.

The script has a call such as `jnp.stack(rows)`, which converts each array of the list on its own.
"""

import ast

from forebay.doctor.analyse.script_code import ScriptCode, last_name, own_nodes, root_name
from forebay.doctor.rules.edits import Edit
from forebay.doctor.rules.input_edits import patch_statement

__all__ = ["is_only_passed_on", "join_with_numpy"]

# Functions of frameworks that join arrays. NumPy has equal functions with these names.
_JOINS = frozenset({"column_stack", "concatenate", "dstack", "hstack", "stack", "vstack"})
# Functions that make an array of a framework, and accept one array as well as a list.
_CONVERSIONS = frozenset({"array", "as_tensor", "asarray", "constant", "convert_to_tensor", "device_put", "tensor"})
# Module of a join, as scripts name it -> function of this module that converts one array. Others have `asarray`.
_CONVERT = dict.fromkeys(("tf", "tensorflow", "ops"), "convert_to_tensor")
_HOST_MODULES = frozenset({"np", "numpy", "onp"})
_FACTS = frozenset({"shape", "dtype", "ndim", "size"})  # attributes that arrays of NumPy and of frameworks have
_MAX_SCOPES = 3  # `is_only_passed_on` follows a result through so many scopes: that of the join, and its callers


def join_with_numpy(code: ScriptCode, number: int, *, converts: bool) -> list[Edit]:
    """Return the edits that join the arrays of a call with NumPy.

    With `converts`, the result becomes one array of the framework. Without it, the result remains a NumPy array. The
    list is empty unless line `number` has exactly one call that joins a list.
    """
    statement = code.statement_at(number)
    call = _join_of(statement) if statement is not None else None
    if statement is None or call is None:
        return []
    numpy = code.module_alias("numpy", "np")
    name, data = last_name(call), call.args[0]
    if name in _CONVERSIONS:
        joined = f"{numpy}.stack({code.text(data)})"
        patch = code.replace(data if converts else call, joined)
    else:
        joined = code.rewrite(call, code.replace(call.func, f"{numpy}.{name}"))
        patch = code.replace(call, f"{_converter(code, call)}({joined})" if converts else joined)
    edits = patch_statement(code, statement, patch)
    outermost = next(node for node in (statement, *code.ancestors(statement)) if node in code.tree.body)
    is_imported = code.imports("numpy") or not edits or not isinstance(outermost, ast.stmt)
    return edits if is_imported else [Edit.before(outermost, "import numpy as np"), *edits]


def _converter(code: ScriptCode, call: ast.Call) -> str:
    """Return the function that converts one array, from the module of a join."""
    module = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    return f"{code.text(module)}.{_CONVERT.get(last_name(module), 'asarray')}"


def _join_of(statement: ast.stmt) -> ast.Call | None:
    """Return the only call of a statement that joins a list; else None."""
    found = [node for node in own_nodes(statement) if isinstance(node, ast.Call) and _is_join(node)]
    return found[0] if len(found) == 1 else None


def _is_join(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or root_name(call.func) in _HOST_MODULES or not call.args:
        return False
    name, data = last_name(call), call.args[0]
    is_list = isinstance(data, ast.ListComp | ast.List | ast.Tuple | ast.Name)
    # NumPy may not know another keyword than `axis`, and may refuse a cast to a `dtype`.
    is_plain = name in _CONVERSIONS or (name in _JOINS and all(keyword.arg == "axis" for keyword in call.keywords))
    return is_list and is_plain


def is_only_passed_on(code: ScriptCode, number: int) -> bool:
    """Whether the script passes the result of a join to jitted functions only.

    Functions of the script may return the result first. The join must have no keyword other than `axis`, because
    another keyword, such as `dtype`, may change the result.
    """
    statement = code.statement_at(number)
    call = _join_of(statement) if statement is not None else None
    if call is None or not isinstance(statement, ast.Assign) or statement.value is not call:
        return False
    if len(statement.targets) != 1 or any(keyword.arg != "axis" for keyword in call.keywords):
        return False
    if last_name(call) in _CONVERSIONS and len(call.args) > 1:
        return False
    return _is_passed_on(code, statement.targets[0], _MAX_SCOPES)


def _is_passed_on(code: ScriptCode, target: ast.expr, depth: int) -> bool:
    """Whether each use of a name passes the value to a jitted function.

    The function of the name may also return the value, if its callers pass it on. `depth` limits the chain of callers.
    """
    if not isinstance(target, ast.Name) or not depth:
        return False
    scope = code.function_around(target)
    uses = [
        node
        for node in code.parents
        if isinstance(node, ast.Name) and node.id == target.id and isinstance(node.ctx, ast.Load)
    ]
    own = [node for node in uses if code.function_around(node) is scope]
    if any(_may_be_variable_of(code, node, scope) for node in uses if node not in own):
        return False  # a nested function uses the name
    return bool(own) and all(_accepts_numpy(code, use, depth) for use in own)


def _may_be_variable_of(code: ScriptCode, use: ast.Name, scope: ast.AST | None) -> bool:
    """Whether a name in another function may be the variable of `scope`."""
    function = code.function_around(use)
    if function is None or (scope is not None and scope not in code.ancestors(function)):
        return False
    bound = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    bound |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return use.id not in bound


def _accepts_numpy(code: ScriptCode, use: ast.Name, depth: int) -> bool:
    """Whether the use of a name also works if its value is a NumPy array."""
    parent = code.parents[use]
    if isinstance(parent, ast.Attribute):
        return parent.attr in _FACTS
    if isinstance(parent, ast.keyword):
        parent = code.parents[parent]
    if isinstance(parent, ast.Call):
        return use is not parent.func and _is_compiled(code, parent)
    position = None
    if isinstance(parent, ast.Tuple):
        position, parent = parent.elts.index(use), code.parents[parent]
    function = code.function_around(use)
    if not isinstance(parent, ast.Return) or function is None:
        return False
    calls = code.calls(function.name)
    return bool(calls) and all(_is_result_passed_on(code, call, position, depth - 1) for call in calls)


def _is_result_passed_on(code: ScriptCode, call: ast.Call, position: int | None, depth: int) -> bool:
    """Whether the result of a call, or its element at `position`, is only passed on."""
    statement = code.parents[call]
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    if position is None:
        return _is_passed_on(code, target, depth)
    is_unpacked = isinstance(target, ast.Tuple) and not any(isinstance(each, ast.Starred) for each in target.elts)
    return is_unpacked and isinstance(target, ast.Tuple) and _is_passed_on(code, target.elts[position], depth)


def _is_compiled(code: ScriptCode, call: ast.Call) -> bool:
    """Whether a call runs a jitted function that the script defines."""
    if not isinstance(call.func, ast.Name):
        return False
    function, value = code.function(call.func.id), code.value_of(call.func.id)
    if function is not None:
        return any(_is_jit(decorator) for decorator in function.decorator_list)
    return isinstance(value, ast.Call) and _is_jit(value)


def _is_jit(node: ast.expr) -> bool:
    """Whether an expression is `jax.jit`, a call of it, or `partial(jax.jit, ...)`."""
    if isinstance(node, ast.Call):
        return _is_jit(node.func) or (last_name(node) == "partial" and bool(node.args) and _is_jit(node.args[0]))
    return last_name(node) in ("jit", "pmap")

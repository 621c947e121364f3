"""The functions that statements of a script call, and the names that these functions change."""

import ast
from collections.abc import Collection, Sequence

from forebay.doctor.analyse.loop_code import names_changed_in_place
from forebay.doctor.analyse.script_code import FUNCTIONS, ScriptCode, last_name, names_in, root_name, stored_names

__all__ = [
    "called_functions",
    "changed_by_functions",
    "executed_lines",
    "free_names",
    "keeps_old_values",
]

Function = ast.FunctionDef | ast.AsyncFunctionDef


def executed_lines(code: ScriptCode, statements: Sequence[ast.stmt]) -> set[int]:
    """Return the lines of statements, and of the functions that they may call.

    A function may be called if one of the statements, or another function that may be called, contains its name.
    """
    pending, seen = list(statements), set[ast.stmt](statements)
    numbers = set[int]()
    while pending:
        statement = pending.pop()
        numbers |= {*range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)}
        named = map(code.function, names_in(statement))
        functions = {function for function in named if function is not None and function not in seen}
        seen |= functions
        pending += functions
    return numbers


def called_functions(code: ScriptCode, names: Collection[str]) -> list[Function]:
    """Return the functions of the script with these names, and those that they may call."""
    lines = executed_lines(code, [function for function in map(code.function, names) if function is not None])
    return [node for node in code.statements if isinstance(node, FUNCTIONS) and node.lineno in lines]


def changed_by_functions(code: ScriptCode, names: Collection[str]) -> set[str]:
    """Return the names that functions with these names may assign or change for their callers.

    These are global and nonlocal names, names of objects that the functions change in place, and the arguments of
    functions that change their parameters in place.
    """
    changed: set[str] = set()
    for function in called_functions(code, names):
        in_place = names_changed_in_place(*function.body) - _updated_copies(function)
        changed |= in_place & free_names(function)
        changed |= _declared_names(function)
        if in_place & {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}:
            calls = code.calls(function.name)
            values = [each for call in calls for each in (*call.args, *(keyword.value for keyword in call.keywords))]
            changed |= {*map(root_name, values)} - {""}
    return changed


def _updated_copies(function: Function) -> set[str]:
    """Return the objects whose `update` returns a result, as that of an optax optimizer, and so changes nothing."""
    values = [node.value for node in ast.walk(function) if isinstance(node, ast.Assign)]
    return {root_name(value) for value in values if isinstance(value, ast.Call) and last_name(value) == "update"}


def _declared_names(function: Function) -> set[str]:
    """Return the names that a function declares as `global` or `nonlocal`."""
    nodes = (node for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal))
    return {name for node in nodes for name in node.names}


def free_names(function: Function) -> set[str]:
    """Return the names of other scopes that a function uses."""
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    parameters = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    stored = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    return ({node.id for node in nodes} - parameters - stored) | _declared_names(function)


def keeps_old_values(code: ScriptCode, function: Function) -> bool:
    """Whether a compiled function would reuse values of its first call that must differ in later calls.

    These values are random numbers of NumPy and Python, and names of other scopes that a loop around its calls assigns.
    """
    functions = [function, *called_functions(code, [function.name])]
    used = set[str]().union(*map(free_names, functions))
    loops = [node for node in code.statements if isinstance(node, ast.For | ast.While)]
    around = [loop for loop in loops if function.lineno in executed_lines(code, [loop])]
    scopes = (None, *(each for each in code.ancestors(function) if isinstance(each, FUNCTIONS)))
    assigned = stored_names(*(loop for loop in around if code.function_around(loop) in scopes))
    declared = (_declared_names(each) for each in called_functions(code, names_in(*around)))
    assigned = assigned.union(*declared)
    return bool(used & assigned) or any(_draws_random_numbers(code, each) for each in functions)


def _draws_random_numbers(code: ScriptCode, function: Function) -> bool:
    """Whether a function calls `random` of NumPy or Python, whose numbers a compiled function would draw only once."""
    modules = {code.module_alias("numpy", "np"), code.module_alias("random", "random")}
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return any(root_name(call.func) in modules and _names_random(code, call) for call in calls)


def _names_random(code: ScriptCode, call: ast.Call) -> bool:
    is_module = code.imports("random") and root_name(call.func) == code.module_alias("random", "random")
    return is_module or any(last_name(node) == "random" for node in ast.walk(call.func))

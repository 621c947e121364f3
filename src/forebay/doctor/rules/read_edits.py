"""Edits that let a loop read values less often, or receive them later.

Each edit function returns an empty list if the code at line `number` has a form for which it knows no edit.
"""

import ast

from forebay.doctor.analyse.loop_code import counter_of, loaded_names
from forebay.doctor.analyse.script_code import ScriptCode, last_name, names_in, own_nodes, root_name, stored_names
from forebay.doctor.rules.called_code import called_functions, free_names
from forebay.doctor.rules.edits import Edit, import_lines
from forebay.doctor.rules.input_edits import outer_loop, patch_statement
from forebay.doctor.rules.step_edits import can_run_rarely, can_skip

__all__ = ["check_on_device", "read_few_times", "receive_later"]

_READING_METHODS = frozenset({"item", "numpy", "tolist", "cpu", "get"})
_MODULES = {"jax": "jax.numpy", "torch": "torch", "cupy": "cupy"}
# Functions that NumPy and the modules in `_MODULES` have in common.
_COMMON_FUNCTIONS = frozenset({"isnan", "isinf", "isfinite", "abs", "sqrt", "square", "exp", "log"})
_READING_FUNCTIONS = frozenset({"float", "int", "asarray", "array", "device_get"})


def read_few_times(code: ScriptCode, number: int, framework: str) -> list[Edit]:
    """Return the edits that read a value in every hundredth step, or after the loop."""
    statement, loop = _statement_and_loop(code, number)
    if statement is None or loop is None:
        return []
    if isinstance(statement, ast.If):
        return _guard_condition(code, statement, loop)
    reads = _reads(statement)
    if _is_sum(statement) and len(reads) == 1 and isinstance(statement, ast.AugAssign):
        if not _is_arithmetic(code, statement, reads[0][0]):
            return []
        return _keep_on_device(code, statement, loop, reads[0], framework)
    if _is_append(statement) and len(reads) == 1:
        return _keep_on_device(code, statement, loop, reads[0], framework)
    counter = counter_of(code, loop)
    if counter is None or not can_skip(code, statement):
        return []
    name, header = counter
    text = "\n".join(f"    {line}" for line in code.text(statement).split("\n"))
    edits = [Edit.instead(statement, f"if {name} % 100 == 0:\n{text}")]
    return edits + ([Edit.header(code, loop, header)] if header is not None else [])


def receive_later(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that receive the values of a line through a `Readback`."""
    statement, loop = _statement_and_loop(code, number)
    reads = _reads(statement) if statement is not None else []
    if statement is None or loop is None or len(reads) != 1 or not (_is_sum(statement) or _is_append(statement)):
        return []
    read, value = reads[0]
    if names_in(statement) - names_in(read) - {_container(code, statement)} - {"float", "int"}:
        return []  # the line uses other values of its step, which change until the read value arrives
    if _is_used(code, _container(code, statement), loop, statement):
        return []  # the loop uses the sum or list, which would lack the values that have not arrived
    readback, name = code.new_name("readback"), code.new_name("value")
    later = code.rewrite(statement, code.replace(read, _arrived_value(read, name)))
    put = f"{readback}.put({code.text(value)})"
    return [
        Edit.before(outer_loop(code, loop), *import_lines(code), f"{readback} = fb.Readback()"),
        Edit.instead(statement, f"{put}\nfor _, {name} in {readback}.ready():\n    {later}"),
        Edit.after_loop(loop, f"for _, {name} in {readback}.drain():", f"    {later}"),
    ]


def check_on_device(code: ScriptCode, number: int, framework: str) -> list[Edit]:
    """Return the edit that lets the device compute a check, instead of NumPy.

    For example, replace `np.isnan(jax.device_get(x))` by `jnp.isnan(x)`.
    """
    statement, _ = _statement_and_loop(code, number)
    module = _MODULES.get(framework)
    if statement is None or module is None or not code.imports(module):
        return []
    reads = _reads(statement)
    checks = [code.parents[read] for read, _ in reads]
    if not reads or not all(_is_common_check(code, check) for check in checks):
        return []
    alias = code.module_alias(module, module)
    patches = [
        code.replace(check, f"{alias}.{last_name(check)}({code.text(value)})")
        for check, (_, value) in zip(checks, reads, strict=True)
        if isinstance(check, ast.Call)
    ]
    return patch_statement(code, statement, *patches)


def _is_common_check(code: ScriptCode, node: ast.AST) -> bool:
    numpy = code.module_alias("numpy", "numpy")
    is_check = isinstance(node, ast.Call) and last_name(node) in _COMMON_FUNCTIONS and root_name(node.func) == numpy
    return is_check and isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords


def _statement_and_loop(code: ScriptCode, number: int) -> tuple[ast.stmt | None, ast.For | ast.While | None]:
    """Return the statement of a line, which may be an `if`, and its innermost loop."""
    statement = code.statement_at(number)
    if statement is None or (hasattr(statement, "body") and not isinstance(statement, ast.If)):
        return None, None
    loops = code.loops_around(statement)
    return statement, loops[0] if loops else None


def _reads(statement: ast.stmt) -> list[tuple[ast.expr, ast.expr]]:
    """Return the outermost expressions that read a value, each with the value that it reads."""
    found: list[tuple[ast.expr, ast.expr]] = []
    inner: set[ast.AST] = set()
    for node in own_nodes(statement):
        value = _read_value(node) if isinstance(node, ast.Call) and node not in inner else None
        if isinstance(node, ast.Call) and value is not None:
            inner.update(ast.walk(node))
            found.append((node, value))
    return found


def _read_value(node: ast.expr) -> ast.expr | None:
    """Return the value that an expression reads, such as `loss` for `float(loss.cpu())`; else None."""
    if not isinstance(node, ast.Call):
        return None
    value = None
    if isinstance(node.func, ast.Attribute) and node.func.attr in _READING_METHODS and not node.args:
        value = node.func.value
    elif last_name(node) in _READING_FUNCTIONS and len(node.args) == 1:
        value = node.args[0]
    if value is None:
        return None
    deeper = _read_value(value)
    value = value if deeper is None else deeper
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "detach":
        return value.func.value
    return value


def _is_sum(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name)


def _is_arithmetic(code: ScriptCode, statement: ast.AugAssign, read: ast.expr) -> bool:
    """Whether a statement adds a read value as a number, not as text or in a list such as `[loss.item()]`."""
    node: ast.AST = read
    while node is not statement.value:
        node = code.parents[node]
        is_number = isinstance(node, ast.UnaryOp) or (isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Mod))
        if not is_number:
            return False
    return True


def _is_append(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    is_append = isinstance(call, ast.Call) and last_name(call) == "append" and len(call.args) == 1
    return is_append and isinstance(call, ast.Call) and _read_value(call.args[0]) is not None


def _arrived_value(read: ast.expr, name: str) -> str:
    """Return code that makes the result of `read` from the NumPy array `name`."""
    if last_name(read) in ("item", "float"):
        return f"float({name})"
    return {"int": f"int({name})", "tolist": f"{name}.tolist()"}.get(last_name(read), name)


def _container(code: ScriptCode, statement: ast.stmt) -> str:
    """Return the sum, or the list, to which a statement adds a value, as text."""
    if isinstance(statement, ast.AugAssign):
        return code.text(statement.target)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return code.text(call.func.value) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""


def _keep_on_device(
    code: ScriptCode,
    statement: ast.stmt,
    loop: ast.stmt,
    read: tuple[ast.expr, ast.expr],
    framework: str,
) -> list[Edit]:
    """Return the edits that keep a value on the device until the loop ends.

    A list is read after the outermost loop that adds to it, because its values can be read only once.
    """
    name, is_list = _container(code, statement), not isinstance(statement, ast.AugAssign)
    end = _loop_that_fills(code, loop, name) if is_list else loop
    if end is None or not name.isidentifier() or _is_used(code, name, end, statement):
        return []  # the loop uses the sum or list elsewhere, which would read its values
    value = f"{code.text(read[1])}{'.detach()' if framework == 'torch' else ''}"
    edits = patch_statement(code, statement, code.replace(read[0], value))
    if is_list:
        item = code.new_name("value")
        reading = code.rewrite(read[0], code.replace(read[1], item))
        return [*edits, Edit.after_loop(end, f"{name} = [{reading} for {item} in {name}]")]
    # `item` keeps integers; without a step, the sum is still a number of Python.
    number = {"item": f'{name}.item() if hasattr({name}, "item") else {name}', "float": f"float({name})"}
    reading = number.get(last_name(read[0]), "")
    return [*edits, Edit.after_loop(end, f"{name} = {reading}")] if reading else []


def _is_used(code: ScriptCode, name: str, loop: ast.stmt, statement: ast.stmt) -> bool:
    """Whether a loop, or a function that it calls, uses a name or attribute outside of `statement`."""
    nodes = (node for node in ast.walk(loop) if isinstance(node, ast.Name | ast.Attribute))
    named = (node for node in nodes if code.text(node) == name)
    root = name.partition(".")[0]
    is_free = any(root in free_names(function) for function in called_functions(code, names_in(loop)))
    return is_free or any(code.statement_of(node) is not statement for node in named)


def _loop_that_fills(code: ScriptCode, loop: ast.stmt, name: str) -> ast.stmt | None:
    """Return the outermost loop between the statement that makes a list and the step.

    Return None unless the list is empty before this loop, in the same function.
    """
    function, number = code.function_around(loop), loop.lineno
    uses = [node for node in code.parents if isinstance(node, ast.Name) and node.id == name and node.lineno < number]
    local = [node for node in uses if code.function_around(node) is function]
    last = max(local, key=lambda node: (node.lineno, node.col_offset), default=None)
    if last is None or not _is_empty_list(code, last) or any(_is_shared(code, node, function) for node in uses):
        return None
    made = code.statement_of(last)
    if code.parents[made] not in code.ancestors(loop):
        return None  # only some runs make the list here
    return [each for each in code.loops_around(loop) if each.lineno > made.lineno][-1]


def _is_empty_list(code: ScriptCode, target: ast.Name) -> bool:
    """Whether a statement assigns a new empty list to `target`, alone or in a tuple."""
    statement, parent = code.statement_of(target), code.parents[target]
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    value = statement.value
    if isinstance(parent, ast.Tuple) and isinstance(value, ast.Tuple) and len(parent.elts) == len(value.elts):
        value = value.elts[parent.elts.index(target)]
    is_call = isinstance(value, ast.Call) and last_name(value) == "list" and not value.args
    return is_call or (isinstance(value, ast.List) and not value.elts)


def _is_shared(code: ScriptCode, node: ast.Name, function: ast.stmt | None) -> bool:
    """Whether another function uses a list of `function` or, without one, of the module."""
    user = code.function_around(node)
    return user is not None and user is not function and node.id not in stored_names(user)


def _guard_condition(code: ScriptCode, statement: ast.If, loop: ast.For | ast.While) -> list[Edit]:
    """Return the edits that evaluate a condition only in every hundredth step."""
    counter = counter_of(code, loop)
    if counter is None or statement.orelse or _decides_training(code, statement):
        return []
    name, header = counter
    test = code.text(statement.test)
    test = f"({test})" if isinstance(statement.test, ast.BoolOp) else test
    edits = patch_statement(code, statement, code.replace(statement.test, f"{name} % 100 == 0 and {test}"))
    return edits + ([Edit.header(code, loop, header)] if header is not None and edits else [])


def _decides_training(code: ScriptCode, test: ast.If) -> bool:
    """Whether the script needs the branch of a test in every step.

    This is so if the branch skips the rest of a step, trains, or assigns names that the script reads.
    """
    nodes = [node for each in test.body for node in ast.walk(each)]
    if any(isinstance(node, ast.Continue | ast.Yield | ast.YieldFrom) for node in nodes):
        return True
    expressions = [node for node in nodes if isinstance(node, ast.Expr)]
    return not all(map(can_run_rarely, expressions)) or bool(stored_names(*test.body) & loaded_names(code.tree))

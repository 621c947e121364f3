"""Edits that move statements of a training loop into a function that JAX compiles."""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from forebay.doctor.analyse.script_code import (
    ScriptCode,
    last_name,
    names_in,
    root_name,
    stored_names,
)
from forebay.doctor.rules.block_names import names_outside, names_read_first
from forebay.doctor.rules.called_code import changed_by_functions, executed_lines
from forebay.doctor.rules.compile_edits import can_compile, is_compiled, jit_name
from forebay.doctor.rules.edits import Edit
from forebay.doctor.rules.function_edits import called_objects

__all__ = ["jit_statements"]

_MODULES = ("jax", "jax.numpy", "jax.nn", "jax.random", "jax.lax", "optax", "jax.scipy", "jax.tree_util")
# Methods of arrays and of optimizers that run inside of a jitted function. Other methods may belong to any object.
_METHODS = frozenset(
    {"all", "any", "argmax", "argmin", "astype", "clip", "cumsum", "dot", "flatten", "max", "mean", "min", "prod"}
    | {"ravel", "reshape", "set", "add", "sort", "squeeze", "std", "sum", "swapaxes", "transpose", "var", "update"}
)
_MAKERS = frozenset({"arange", "empty", "eye", "ones", "zeros"})  # functions that make an array of a given size
# Share of the lines with operations that must move. If fewer move, most of the time would remain in the loop.
MOVED_SHARE = 0.5
_ARRAY_FACTS = frozenset({"T", "at", "dtype", "mT", "ndim", "shape", "size"})  # attributes of arrays
_READERS = ("int", "float", "bool")  # builtins that read the value of an array
# Builtins that run inside of a jitted function.
_PLAIN_CALLS = frozenset({"zip", "len", "tuple", "list", "dict", "range", "enumerate", "sum", "abs", "min", "max"})


def jit_statements(code: ScriptCode, loop: ast.For | ast.While, lines: Collection[int]) -> list[Edit]:
    """Return the edits that move the statements for `lines` into a jitted function.

    These are consecutive assignments of the loop that execute these lines. The function's parameters are the names that
    the loop changes, and the arrays that the script makes with JAX. It uses other names of the script, such as those of
    functions, directly. If the next statement reads a value, as in `action = int(jax.random.choice(key, 4))`, the
    function computes this value too. The loop still selects parts of arrays that a jitted function cannot select, such
    as `rows[indices]` of a NumPy array.

    No argument is donated, because the code does not show whether another name refers to the same memory. The list is
    empty if no function would contain MOVED_SHARE of `lines`.
    """
    block = _choose_block(code, loop, lines)
    if not block:
        return []
    read = _following_read(code, loop, block, lines)
    block = [*block, read.statement] if read is not None else block
    outer = code.loops_around(loop)[-1]
    changed = stored_names(*code.loops_around(loop)) | changed_by_functions(code, names_in(outer))
    host_parts = _name_host_parts(code, loop, block)
    outside = {inner for part in host_parts for inner in ast.walk(part)}
    nodes = [node for each in block for node in ast.walk(each) if node not in outside]
    called = {root_name(node.func) for node in nodes if isinstance(node, ast.Call)}
    free = [name for name in names_read_first(block, outside) if name not in called or name in changed]
    # Data that JAX converts is a parameter too. Otherwise it would be a constant of the compiled function.
    parameters = [name for name in free if name in changed | _converted_names(nodes) or _is_jax_array(code, name)]
    outputs = [name for name in sorted(stored_names(*block)) if name in names_outside(code, block)]
    if not outputs or _objects_in(code, nodes) & (changed | called_objects(code, outer)):
        return []  # the compiled function would keep the first value of `self.rate`
    name = "train_step" if "train_step" not in code.all_names else code.new_name("jitted_step")
    results = ", ".join(outputs)
    jit, imports = jit_name(code)
    arguments = [*parameters, *dict.fromkeys(map(code.text, host_parts))]
    parameters += dict.fromkeys(host_parts.values())
    texts = [_rewrite_block_line(code, statement, host_parts) for statement in block]
    texts[-1:] = [f"{read.name} = {read.value}"] if read is not None else texts[-1:]
    body = [f"    {line}" for text in texts for line in text.split("\n")]
    tail = f"{read.name} = {read.reader}({read.name})" if read is not None else ""
    head = f"def {name}({', '.join(parameters)}):"
    last = block[-1].end_lineno or block[-1].lineno
    return [
        Edit.before(outer, *imports, f"@{jit}", head, *body, f"    return {results}"),
        Edit("instead", block[0].lineno, last, f"{results} = {name}({', '.join(arguments)})\n{tail}".rstrip("\n")),
    ]


def _objects_in(code: ScriptCode, nodes: Sequence[ast.AST]) -> set[str]:
    """Return the names of objects whose attributes nodes read, such as `self` for `self.rate`."""
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    attributes = [node for node in nodes if isinstance(node, ast.Attribute) and node not in called]
    return {root_name(node) for node in attributes if node.attr not in _ARRAY_FACTS} - _jax_names(code)


def _name_host_parts(code: ScriptCode, loop: ast.stmt, block: Sequence[ast.stmt]) -> dict[ast.Subscript, str]:
    """Return the host parts of a block (see `_host_parts`), each with its parameter name."""
    names: dict[str, str] = {}
    found: dict[ast.Subscript, str] = {}
    for part in (part for statement in block for part in _host_parts(code, loop, statement)):
        text = code.text(part)
        if text not in names:
            name = code.new_name(f"{root_name(part)}_batch")
            taken = sum(each.rstrip("0123456789") == name for each in names.values())
            names[text] = f"{name}{taken + 1}" if taken else name
        found[part] = names[text]
    return found


def _rewrite_block_line(code: ScriptCode, statement: ast.stmt, host_parts: Mapping[ast.Subscript, str]) -> str:
    inside = {*ast.walk(statement)}
    return code.rewrite(statement, *(code.replace(part, name) for part, name in host_parts.items() if part in inside))


class _Read(NamedTuple):
    """A statement that reads a value, such as `action = int(value)`."""

    statement: ast.Assign
    name: str  # such as `action`
    reader: str  # such as `int`
    value: str  # the text of the value


def _following_read(
    code: ScriptCode, loop: ast.For | ast.While, block: Sequence[ast.stmt], lines: Collection[int]
) -> _Read | None:
    """Return the statement after a block if it reads what JAX computes; else None."""
    following = loop.body[loop.body.index(block[-1]) + 1 :][:1]
    statement = following[0] if following and isinstance(following[0], ast.Assign) else None
    call = statement.value if statement is not None else None
    if statement is None or not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
        return None
    if not isinstance(call.func, ast.Name) or call.func.id not in _READERS or not _executes(code, statement, lines):
        return None
    computed = ast.copy_location(ast.Assign(targets=statement.targets, value=call.args[0]), statement)
    is_one_name = len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name)
    if (
        not is_one_name
        or not _can_jit(code, loop, computed)
        or _host_parts(code, loop, computed)
        or code.replace_in_lines(statement, "") is not None
    ):
        return None
    return _Read(statement, root_name(statement.targets[0]), call.func.id, code.text(call.args[0]))


def _choose_block(code: ScriptCode, loop: ast.For | ast.While, lines: Collection[int]) -> list[ast.stmt]:
    """Return consecutive statements that JAX can jit and that execute most of the lines."""
    blocks = _split_into_blocks(code, loop)
    trimmed = [_trim(block, [_executes(code, statement, lines) for statement in block]) for block in blocks]
    best = max(trimmed, key=lambda block: sum(_executes(code, each, lines) for each in block), default=[])
    is_one_line = [code.replace_in_lines(each, "") is None for each in best]
    moved = sum(any(_executes(code, each, {line}) for each in best) for line in lines)
    return best if all(is_one_line) and moved >= MOVED_SHARE * len(lines) else []


def _split_into_blocks(code: ScriptCode, loop: ast.For | ast.While) -> Iterator[list[ast.stmt]]:
    """Yield blocks: consecutive statements that one jitted function can execute.

    A statement starts a new block if the loop must select a part of it with names that the present block assigns.
    """
    block: list[ast.stmt] = []
    for statement in loop.body:
        can_jit = _can_jit(code, loop, statement)
        if not can_jit or names_in(*_host_parts(code, loop, statement)) & stored_names(*block):
            yield block
            block = []
        block += [statement] if can_jit else []
    yield block


def _trim(block: list[ast.stmt], is_wanted: list[bool]) -> list[ast.stmt]:
    """Return the block from its first to its last wanted statement."""
    wanted = [index for index, each in enumerate(is_wanted) if each]
    return block[wanted[0] : wanted[-1] + 1] if wanted else []


def _executes(code: ScriptCode, statement: ast.stmt, lines: Collection[int]) -> bool:
    """Whether a statement, or a function that it may call, contains one of the lines."""
    return not executed_lines(code, [statement]).isdisjoint(lines)


def _can_jit(code: ScriptCode, loop: ast.For | ast.While, statement: ast.stmt) -> bool:
    """Whether a statement is an assignment that a jitted function can execute."""
    if not isinstance(statement, ast.Assign | ast.AugAssign):
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if not all(_are_names(target) for target in targets):
        return False
    host_parts = _host_parts(code, loop, statement)
    outside = {inner for part in host_parts for inner in ast.walk(part)}
    nodes = [node for node in ast.walk(statement.value) if node not in outside]
    if any(isinstance(node, ast.Lambda | ast.Await | ast.NamedExpr | ast.IfExp | ast.JoinedStr) for node in nodes):
        return False
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    subscripts = [node for node in nodes if isinstance(node, ast.Subscript)]
    counters = stored_names(loop.target) if isinstance(loop, ast.For) else set()
    is_computed = calls or subscripts or any(isinstance(node, ast.BinOp) for node in nodes)
    is_computed = is_computed or (isinstance(statement, ast.AugAssign) and isinstance(statement.value, ast.Name))
    can_call = all(_can_call(code, call) and not _size_changes(code, loop, call) for call in calls)
    return bool(is_computed) and can_call and all(_can_index(code, loop, each, counters) for each in subscripts)


def _host_parts(code: ScriptCode, loop: ast.stmt, statement: ast.stmt) -> list[ast.Subscript]:
    """Return the host parts of an assignment: outermost subscripts that the loop must evaluate.

    A jitted function cannot evaluate them. The loop can do so before it calls the function, if the statement assigns
    none of their names.
    """
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.expr) or isinstance(value, ast.Subscript):
        return []
    counters = stored_names(loop.target) if isinstance(loop, ast.For) else set()
    local = {name for node in ast.walk(value) if isinstance(node, ast.comprehension) for name in names_in(node.target)}
    found: list[ast.Subscript] = []
    for node in ast.walk(value):  # from the outside in
        is_inner = any(node in ast.walk(part) for part in found)
        if not isinstance(node, ast.Subscript) or is_inner or names_in(node) & (stored_names(statement) | local):
            continue
        calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
        if not _can_index(code, loop, node, counters) or not all(_can_call(code, call) for call in calls):
            found.append(node)
    return sorted(found, key=lambda part: (part.lineno, part.col_offset))


def _converted_names(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the names that these nodes pass to `jnp.asarray` or `jnp.array`."""
    calls = (node for node in nodes if isinstance(node, ast.Call) and last_name(node) in ("asarray", "array"))
    arguments = {node for call in calls for argument in call.args for node in ast.walk(argument)}
    return names_in(*(node for node in arguments if isinstance(node, ast.Name) and node in {*nodes}))


def _are_names(target: ast.expr) -> bool:
    elements = target.elts if isinstance(target, ast.Tuple) else [target]
    return all(isinstance(element, ast.Name) for element in elements)


def _can_call(code: ScriptCode, call: ast.Call) -> bool:
    """Whether a call can run inside of a jitted function."""
    if isinstance(call.func, ast.Call):  # such as jax.grad(loss)(params)
        return _is_of_jax(code, call.func)
    if _is_of_jax(code, call):
        return last_name(call) not in ("device_put", "device_get", "block_until_ready", "print")
    name = last_name(call)
    if isinstance(call.func, ast.Attribute):
        return name in _METHODS and root_name(call.func) != code.module_alias("numpy", "np")
    function = code.function(name)
    if function is not None:
        is_of_modules = any(root_name(node) == "nnx" for node in function.decorator_list)
        return not is_of_modules and (is_compiled(function) or can_compile(code, function, "jax"))
    return name in _PLAIN_CALLS or _is_of_jax(code, code.value_of(name))


def _size_changes(code: ScriptCode, loop: ast.stmt, call: ast.Call) -> bool:
    """Whether a call makes an array whose size the loop computes.

    A jitted function needs constant sizes.
    """
    if last_name(call) not in _MAKERS or not _is_of_jax(code, call):
        return False
    known = [each for each in ast.walk(call) if isinstance(each, ast.Attribute) or last_name(each) == "len"]
    shapes = {node for each in known for node in ast.walk(each)}  # such as `x.shape[0]`, which JAX knows
    sizes = (node for argument in call.args for node in ast.walk(argument) if node not in shapes)
    return bool({node.id for node in sizes if isinstance(node, ast.Name)} & stored_names(*code.loops_around(loop)))


def _can_index(code: ScriptCode, loop: ast.stmt, node: ast.Subscript, counters: Collection[str]) -> bool:
    """Whether a jitted function can evaluate a subscript.

    It can if the index is constant, or if an array of JAX is indexed. But it cannot slice from one variable to another.
    Subscripts with the counter of the loop remain in the loop.
    """
    if not names_in(node.slice):
        return True
    has_slice = any(isinstance(each, ast.Slice) for each in ast.walk(node.slice))
    array = root_name(node.value)
    is_of_jax = _is_of_jax(code, node.value) or _is_jax_array(code, array)
    return not has_slice and not names_in(node.slice) & set(counters) and is_of_jax


def _is_jax_array(code: ScriptCode, name: str) -> bool:
    """Whether the script assigns a name only once, to a result of JAX."""
    return _is_of_jax(code, code.value_of(name))


def _is_of_jax(code: ScriptCode, node: ast.AST | None) -> bool:
    """Whether an expression begins with a name that the script imports from JAX or optax."""
    return isinstance(node, ast.Call | ast.Attribute) and root_name(node) in _jax_names(code)


def _jax_names(code: ScriptCode) -> set[str]:
    """Return the names that the script imports from JAX or optax."""
    found: set[str] = set()
    for node in code.statements:
        if isinstance(node, ast.Import):
            aliases = [alias for alias in node.names if alias.name in _MODULES]
            found |= {alias.asname or alias.name.partition(".")[0] for alias in aliases}
        elif isinstance(node, ast.ImportFrom) and node.module in _MODULES:
            found |= {alias.asname or alias.name for alias in node.names}
    return found

"""The arrays of a batch that a loop makes, and the statements that make them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from forebay.doctor.analyse.loop_code import (
    conversions_in,
    is_numpy,
    loaded_names,
    names_changed_in_place,
    numpy_names,
    sliced_arrays,
)
from forebay.doctor.analyse.script_code import ScriptCode, last_name, names_in, own_nodes, stored_names
from forebay.doctor.rules.called_code import called_functions, changed_by_functions, free_names
from forebay.doctor.rules.function_edits import called_objects

__all__ = ["BatchPart", "can_run_ahead", "find_makers", "find_parts", "is_separable"]

_MOVES = frozenset({"to", "cuda", "pin_memory", "contiguous"})  # methods of tensors; a feed does their work
# Class of tensors in PyTorch -> name of their dtype.
_NAMED_DTYPES = {"FloatTensor": "float32", "DoubleTensor": "float64", "LongTensor": "int64", "IntTensor": "int32"}


@dataclass(frozen=True, slots=True)
class BatchPart:
    """An array of the batch, as the loop of the script makes it."""

    statement: ast.stmt  # the statement of the loop that contains `node`
    node: ast.expr  # the conversion; or the host data, if a called function converts it, as in `step(x[rows])`
    data: ast.expr  # the host data in `node`
    name: str  # of the array in the edited loop
    is_assignment: bool  # the statement only assigns the conversion to `name`
    methods: tuple[str, ...] = ()  # calls of methods that the edited loop keeps, such as ".float()"
    dtype: str | None = None  # the dtype to which the conversion casts the data; None without a cast

    def host_text(self, code: ScriptCode) -> str:
        text = code.text(self.data)
        return text if self.dtype is None else f'np.asarray({text}, dtype="{self.dtype}")'


def find_parts(code: ScriptCode, statement: ast.stmt, loop: ast.For, list_dtype: str | None) -> Iterator[BatchPart]:
    """Yield the arrays that the loop converts in `statement`, or in a plain assignment."""
    assigned = stored_names(loop)
    for owner in loop.body:
        conversions = [part for part in conversions_in(owner) if names_in(part.data) & assigned]
        is_whole = isinstance(owner, ast.Assign) and len(conversions) == 1 and owner.value is conversions[0].node
        if isinstance(owner, ast.Assign) and is_whole and isinstance(owner.targets[0], ast.Name):
            part = conversions[0]
            methods, dtype = _conversion_details(code, part.node)
            yield BatchPart(owner, part.node, part.data, owner.targets[0].id, True, methods, dtype or list_dtype)
        elif owner is statement:
            for part in conversions:
                methods, dtype = _conversion_details(code, part.node)
                name = part.data.id if isinstance(part.data, ast.Name) else _part_name(code, part.data)
                yield BatchPart(owner, part.node, part.data, name, False, methods, dtype or list_dtype)
            if not conversions:
                yield from _implicit_parts(code, owner, loop)


def _implicit_parts(code: ScriptCode, statement: ast.stmt, loop: ast.For) -> Iterator[BatchPart]:
    """Yield the NumPy arrays that a statement passes to functions, which convert them.

    Each of these arrays is a slice, or the loop makes it.
    """
    assigned, arrays = stored_names(loop), numpy_names(code)
    arguments = [
        argument
        for node in own_nodes(statement)
        if isinstance(node, ast.Call)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords))
    ]
    found = [
        node
        for node in arguments
        if (isinstance(node, ast.Name) and node.id in arrays & assigned)
        or (isinstance(node, ast.Subscript) and names_in(node) & arrays and names_in(node) & assigned)
        or (isinstance(node, ast.Subscript | ast.Call) and is_numpy(node, arrays) and _has_call(node))
    ]
    inner = {part for node in found for part in ast.walk(node) if part is not node}
    found = [node for node in found if node not in inner]
    for node in found:
        name = node.id if isinstance(node, ast.Name) else _part_name(code, node)
        yield BatchPart(statement, node, node, name, False)


def _has_call(node: ast.expr) -> bool:
    """Whether an expression has a call, such as `rng.random()`, which may change its value."""
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


def _part_name(code: ScriptCode, data: ast.expr) -> str:
    """Return a new name for an array of the batch, such as `x_batch`."""
    arrays = sliced_arrays(data)
    return code.new_name(f"{code.text(arrays[0].value)}_batch" if arrays else "batch")


def _conversion_details(code: ScriptCode, node: ast.expr) -> tuple[tuple[str, ...], str | None]:
    """Return the methods of a conversion that a feed does not replace, and its dtype.

    The methods are calls as text, such as ".float()". The dtype is None if the conversion names none.
    """
    methods: list[str] = []
    dtype = None
    while isinstance(node, ast.Call):
        name = last_name(node)
        dtype = _NAMED_DTYPES.get(name) or _dtype_argument(node) or dtype
        if isinstance(node.func, ast.Attribute) and name in ("float", "double", "half", "long", "requires_grad_"):
            methods.insert(0, f".{name}()")
            node = node.func.value
        elif isinstance(node.func, ast.Attribute) and name in _MOVES:
            node = node.func.value
        elif node.args:
            node = node.args[0]
        else:
            break
    return tuple(methods), dtype


def _dtype_argument(call: ast.Call) -> str | None:
    """Return the dtype argument of a conversion, such as "float32" for `torch.float32`; else None."""
    values = [keyword.value for keyword in call.keywords if keyword.arg == "dtype"]
    names = [value.value if isinstance(value, ast.Constant) else last_name(value) for value in values]
    names += [last_name(argument) for argument in call.args[1:2]]
    known = ("float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")
    return next((str(name) for name in names if name in known), None)


def find_makers(loop: ast.For, parts: list[BatchPart]) -> list[ast.stmt] | None:
    """Return the statements of the loop that make the host data of a batch.

    Return None if the data also depends on other statements of the loop, or on its value in earlier steps.
    """
    owners = {part.statement for part in parts}
    needed = set().union(*(names_in(part.data) for part in parts)) & stored_names(*loop.body)
    makers: list[ast.stmt] = []
    for statement in reversed(loop.body):
        if statement in owners or not stored_names(statement) & needed:
            continue
        if isinstance(statement, ast.AugAssign):
            return None
        makers.insert(0, statement)
        needed |= names_in(statement) & stored_names(*loop.body)
    return makers if needed <= stored_names(*makers) else None


def is_separable(loop: ast.For, parts: list[BatchPart], makers: list[ast.stmt]) -> bool:
    """Whether the loop uses the results of `makers` only as parts of the batch."""
    made = stored_names(*makers) - {part.name for part in parts if part.is_assignment}
    replaced = {node for part in parts for node in ast.walk(part.node)}
    remaining = [statement for statement in loop.body if statement not in makers]
    uses = {
        node.id
        for statement in remaining
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and node not in replaced
    }
    targets = names_in(loop.target)
    return not made & uses and not stored_names(*makers) & stored_names(*remaining) - {p.name for p in parts} - targets


def can_run_ahead(code: ScriptCode, loop: ast.For, parts: list[BatchPart], makers: list[ast.stmt]) -> bool:
    """Whether a generator can make the batches of later steps, in the order of the loop.

    A batch must not depend on an earlier step, or on objects that the rest of the loop may change. The loop must make a
    batch in each step, before it changes the names that make the batch.
    """
    owners = {part.statement for part in parts}
    last = max(statement.lineno for statement in (*owners, *makers))
    if any(isinstance(node, ast.Continue) and node.lineno < last for node in ast.walk(loop)):
        return False
    if any(stored_names(maker) & names_in(part.data) for maker in makers for part in parts if _is_before(part, maker)):
        return False
    if {*_names_read_first(loop, makers)} & stored_names(*makers):
        return False  # the value of the previous step, such as `position = position + 32`
    used = names_in(loop.iter, *makers, *(part.data for part in parts))
    remaining = [statement for statement in loop.body if statement not in makers and statement not in owners]
    in_data = {node for part in parts for node in ast.walk(part.data)}
    nodes = (node for each in (*remaining, *owners) for node in ast.walk(each) if node not in in_data)
    kept = {node.id for node in nodes if isinstance(node, ast.Name)}
    makes, keeps = called_functions(code, used), called_functions(code, kept)
    moved = [*owners, *makers, *(function for function in makes if function not in keeps)]
    inside = {number for each in moved for number in range(each.lineno, (each.end_lineno or 0) + 1)}
    changed = names_changed_in_place(*remaining) | called_objects(code, loop, inside) | changed_by_functions(code, kept)
    indirect = set[str]().union(*map(free_names, makes))
    if indirect & (changed | stored_names(loop)) or changed_by_functions(code, used) & kept:
        return False  # a function that makes batches uses what the loop changes, or changes what the loop uses
    return not used & changed - stored_names(*makers, loop.target)


def _is_before(part: BatchPart, maker: ast.stmt) -> bool:
    return (part.node.lineno, part.node.col_offset) < (maker.lineno, maker.col_offset)


def _names_read_first(loop: ast.For, makers: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that makers read before makers of the same step assign them."""
    assigned = stored_names(loop.target)
    for maker in makers:
        yield from loaded_names(maker) - assigned
        assigned |= stored_names(maker)

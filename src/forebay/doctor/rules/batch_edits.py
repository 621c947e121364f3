"""Edits that let a feed make the batches of a loop.

If the loop only takes consecutive slices of arrays, the feed reads the whole arrays, and shuffles them if the script
does. Otherwise, the feed runs a generator with the statements of the loop that make a batch, so the order of the rows
stays the same.
"""

import ast
from collections.abc import Iterator

from forebay.doctor.analyse.loop_code import names_changed_in_place, numpy_names, sliced_arrays
from forebay.doctor.analyse.script_code import ScriptCode, last_name, names_in, root_name, stored_names
from forebay.doctor.rules.batch_parts import BatchPart, can_run_ahead, find_makers, find_parts, is_separable
from forebay.doctor.rules.called_code import changed_by_functions
from forebay.doctor.rules.edits import Edit, import_lines
from forebay.doctor.rules.input_edits import feed_call, patch_statement

__all__ = ["feed_of_loop"]

_SHUFFLES = frozenset({"permutation", "randperm", "shuffle"})  # functions whose results are shuffled row numbers


def feed_of_loop(code: ScriptCode, number: int, framework: str, list_dtype: str | None = None) -> list[Edit]:
    """Return the edits that let a feed make the batches of a loop.

    Line `number` converts the batch, or passes it to a function. The result is empty if the loop makes its batches in a
    form that cannot be separated from the rest. `list_dtype` is the dtype of the tensors, if the loop converts Python
    lists.
    """
    statement = code.statement_at(number)
    loops = code.loops_around(statement) if statement is not None else []
    if statement is None or not loops or not isinstance(loops[0], ast.For) or loops[0].orelse:
        return []
    loop = loops[0]
    parts = [*find_parts(code, statement, loop, list_dtype)]
    makers = find_makers(loop, parts)
    if not parts or makers is None or not is_separable(loop, parts, makers):
        return []
    if not can_run_ahead(code, loop, parts, makers) or code.rewrite_header(loop) is None:
        return []
    removed = {*makers, *(part.statement for part in parts if part.is_assignment and not part.methods)}
    if removed >= {*loop.body}:
        return []  # no statement would remain that uses the batches
    header = _new_header(code, loop, parts, makers)
    if header is None:
        return []
    # A feed makes its first batch when it is created. If batches depend on names that an outer loop changes, create the
    # feed after these changes, once per iteration of the outer loop.
    made = names_in(loop.iter, *makers, *(part.data for part in parts)) - stored_names(loop)
    changed = set[str]().union(*(_changed_names(code, around, loop) for around in loops[1:]))
    are_constant = not {root_name(part.data) for part in parts} & changed
    lines = _array_feed(code, loop, parts, makers, framework) if are_constant else []
    lines = lines or _generator_feed(code, loop, parts, makers, framework)
    is_per_epoch = bool(made & changed) and "from_batches" in lines[-1]
    if any(_names_device(part.node) for part in parts):
        return []  # the script names a device, but a feed chooses the device itself
    outer = loop if is_per_epoch else loops[-1]
    edits = [Edit.before(outer, *lines), Edit.header(code, loop, header)]
    edits += [Edit.after_loop(loop, f"{_feed_name(code)}.close()")] if is_per_epoch else []
    return [*edits, *(Edit.remove(code, maker) for maker in makers), *_edit_conversions(code, parts)]


def _changed_names(code: ScriptCode, around: ast.stmt, loop: ast.stmt) -> set[str]:
    """Return the names that an outer loop assigns or changes outside of an inner loop."""
    body: list[ast.stmt] = getattr(around, "body", [])
    target = [around.target] if isinstance(around, ast.For) else []
    others = [statement for statement in body if statement is not loop]
    in_place = names_changed_in_place(*others) | changed_by_functions(code, names_in(*others))
    return stored_names(*target, *others) | in_place


def _names_device(node: ast.expr) -> bool:
    """Whether a conversion of JAX names a device or a sharding."""
    return any(
        isinstance(part, ast.Call) and last_name(part) == "device_put" and len(part.args) + len(part.keywords) > 1
        for part in ast.walk(node)
    )


def _new_header(code: ScriptCode, loop: ast.For, parts: list[BatchPart], makers: list[ast.stmt]) -> str | None:
    """Return the header of the loop over the feed.

    If the loop uses the counter of a `range`, the header keeps the counter. Return None if the loop uses the target of
    an iterable that is not a `range`.
    """
    names = ", ".join(part.name for part in parts)
    replaced = {node for part in parts for node in ast.walk(part.node)}
    body = [node for statement in loop.body if statement not in makers for node in ast.walk(statement)]
    used = {node.id for node in body if isinstance(node, ast.Name) and node not in replaced}
    if not names_in(loop.target) & used:
        return f"for {names} in {_feed_name(code)}:"
    if last_name(loop.iter) != "range" or not isinstance(loop.iter, ast.Call):
        return None
    names = f"({names})" if len(parts) > 1 else names
    return f"for {names}, {code.text(loop.target)} in zip({_feed_name(code)}, {code.text(loop.iter)}):"


def _feed_name(code: ScriptCode) -> str:
    return code.new_name("feed")


def _generator_feed(
    code: ScriptCode, loop: ast.For, parts: list[BatchPart], makers: list[ast.stmt], framework: str
) -> list[str]:
    """Return the lines of code for a feed whose generator runs `makers`."""
    header = code.rewrite_header(loop) or f"for {code.text(loop.target)} in {code.text(loop.iter)}:"
    body = [line for maker in makers for line in code.text(maker).split("\n")]
    body.append(f"yield {', '.join(part.host_text(code) for part in parts)}")
    needs_numpy, name = any(part.dtype for part in parts), code.new_name("batches")
    return [
        *import_lines(code, numpy=needs_numpy),
        f"def {name}():",
        *(f"    {line}" for line in header.split("\n")),
        *(f"        {line}" for line in body),
        f"{_feed_name(code)} = fb.from_batches({name}){feed_call(code, loop, framework)}",
    ]


def _array_feed(
    code: ScriptCode, loop: ast.For, parts: list[BatchPart], makers: list[ast.stmt], framework: str
) -> list[str]:
    """Return the lines of code for a feed of whole arrays.

    The list is empty unless the loop takes consecutive slices of the arrays.
    """
    slices = [part.data for part in parts]
    if makers or any(part.dtype for part in parts) or not isinstance(loop.iter, ast.Call):
        return []
    lengths = {text for data in slices for array in sliced_arrays(data) for text in _length_texts(code, array)}
    described = {_describe_slice(code, loop, data, lengths) for data in slices}
    if len(described) != 1 or None in described:
        return []
    rows, order = next(description for description in described if description is not None)
    names = [code.text(sliced_arrays(data)[0].value) for data in slices]
    tree = names[0] if len(names) == 1 else f"({', '.join(names)})"
    pipeline = f"fb.from_arrays({tree}){order}.batch({rows}){feed_call(code, loop, framework)}"
    return [*import_lines(code), f"{_feed_name(code)} = {pipeline}"]


def _length_texts(code: ScriptCode, array: ast.Subscript) -> tuple[str, str]:
    return f"len({code.text(array.value)})", f"{code.text(array.value)}.shape[0]"


def _describe_slice(code: ScriptCode, loop: ast.For, data: ast.expr, lengths: set[str]) -> tuple[str, str] | None:
    """Return the rows per batch of a slice, and the code that shuffles the feed.

    Both are text. For `x[i:i + rows]`, the code is empty. For `x[order[i:i + rows]]`, it calls `shuffle`. Return None
    for any other expression. `lengths` are the expressions for the number of all rows, such as `len(x)`.
    """
    if (
        not isinstance(data, ast.Subscript)
        or not isinstance(data.value, ast.Name)
        or not isinstance(loop.iter, ast.Call)
    ):
        return None
    if data.value.id not in numpy_names(code):
        return None
    index, order = data.slice, ""
    if isinstance(index, ast.Subscript) and isinstance(index.value, ast.Name):
        if last_name(code.value_of(index.value.id)) not in _SHUFFLES:
            return None
        index, order = index.slice, ".shuffle(seed=0)"
    if not isinstance(index, ast.Slice) or index.lower is None or index.upper is None or index.step is not None:
        return None
    lower, upper, target = code.text(index.lower), code.text(index.upper), code.text(loop.target)
    arguments = [code.text(argument) for argument in loop.iter.args]
    if len(arguments) == 3 and arguments[0] == "0" and lower == target:
        rows, count = arguments[2], code.value_of(arguments[1])
        is_whole = arguments[1] in lengths or (count is not None and code.text(count) in lengths)
        return (rows, order) if is_whole and upper in (f"{target} + {rows}", f"{target}+{rows}") else None
    return None


def _edit_conversions(code: ScriptCode, parts: list[BatchPart]) -> Iterator[Edit]:
    """Yield the edits of statements that convert arrays, which now come from the feed.

    If a statement only assigns a conversion, remove it, unless the loop must still call methods of the tensor.
    """
    by_statement: dict[ast.stmt, list[BatchPart]] = {}
    for part in parts:
        by_statement.setdefault(part.statement, []).append(part)
    for statement, owned in by_statement.items():
        if owned[0].is_assignment:
            text = f"{owned[0].name} = {owned[0].name}{''.join(owned[0].methods)}" if owned[0].methods else ""
            yield Edit.instead(statement, text)
        else:
            patches = [code.replace(part.node, f"{part.name}{''.join(part.methods)}") for part in owned]
            yield from patch_statement(code, statement, *patches)

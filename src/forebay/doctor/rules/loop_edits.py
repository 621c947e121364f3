"""Edits that move conversions and uploads out of a loop, or remove calls.

Each edit function returns an empty list if the code at line `number` has a form for which it knows no edit.
"""

import ast
import re
from collections.abc import Sequence

from forebay.doctor.analyse.loop_code import (
    Conversion,
    conversions_in,
    is_constant_conversion,
    is_invariant,
    listed_conversion,
    names_changed_in_place,
    numpy_names,
    sliced_arrays,
)
from forebay.doctor.analyse.script_code import (
    FUNCTIONS,
    ScriptCode,
    last_name,
    names_in,
    own_nodes,
    root_name,
    stored_names,
)
from forebay.doctor.rules.called_code import changed_by_functions
from forebay.doctor.rules.edits import Edit, import_lines
from forebay.doctor.rules.input_edits import outer_loop, patch_statement

__all__ = [
    "change_arrays",
    "convert_all_elements",
    "convert_before_loop",
    "disable_setting",
    "keep_arrays_on_device",
    "remove_call",
    "upload_once_in_loop",
]

# Framework -> modules that the script may have imported, each with a call that converts an array.
_CONVERTERS = {
    "tensorflow": (("tensorflow", "{}.constant({})"), ("keras", "{}.ops.convert_to_tensor({})")),
    "keras": (("keras", "{}.ops.convert_to_tensor({})"), ("tensorflow", "{}.constant({})")),
    "torch": (("torch", "{}.as_tensor({})"),),
    "jax": (("jax", "{}.device_put({})"), ("jax.numpy", "{}.asarray({})")),
    "cupy": (("cupy", "{}.asarray({})"),),
}
_VIEWS = ("torch", "cupy")  # frameworks whose slices share the memory of the whole array


def convert_before_loop(code: ScriptCode, number: int, framework: str) -> list[Edit]:
    """Return the edits that move the conversion of constant data out of the loop."""
    statement, loop = _statement_and_loop(code, number)
    if statement is None or loop is None:
        return []
    constant = [part for part in conversions_in(statement) if is_constant_conversion(part, loop)]
    if isinstance(statement, ast.Assign) and stored_names(*statement.targets) & names_changed_in_place(loop):
        return []  # every step needs a new tensor
    outer = _outermost_invariant(code, loop, [part.node for part in constant])
    if len(constant) == 1 and statement in loop.body and _is_whole_assignment(statement, constant[0], outer):
        return [Edit.before(outer, code.text(statement)), Edit.remove(code, statement)]
    if constant:
        return _convert_first(code, statement, outer, [(part, code.text(part.node)) for part in constant])
    arguments = _constant_arguments(code, statement, loop)
    outer = _outermost_invariant(code, loop, arguments)
    found = [(module, call) for module, call in _CONVERTERS.get(framework, ()) if code.imports(module)]
    if not found:
        return []
    module, call = found[0]
    alias = code.module_alias(module, module)
    parts = [(Conversion(node, node), call.format(alias, code.text(node))) for node in arguments]
    return _convert_first(code, statement, outer, parts)


def upload_once_in_loop(code: ScriptCode, number: int, framework: str) -> list[Edit]:
    """Return the edits that replace the conversion of a constant array by `upload_once`."""
    statement, loop = _statement_and_loop(code, number)
    if statement is None or loop is None:
        return []
    parts = [(part.node, part.data) for part in conversions_in(statement) if is_constant_conversion(part, loop)]
    parts = parts or [(node, node) for node in _constant_arguments(code, statement, loop)]
    parts = [(node, data) for node, data in parts if isinstance(data, ast.Name) and data.id in numpy_names(code)]
    if not parts:
        return []
    patches = [code.replace(node, f'fb.upload_once({code.text(data)}, to="{framework}")') for node, data in parts]
    imports = import_lines(code)
    before = [Edit.before(outer_loop(code, loop), *imports)] if imports else []
    return [*before, *patch_statement(code, statement, *patches)]


def keep_arrays_on_device(code: ScriptCode, number: int, framework: str) -> list[Edit]:
    """Return the edits that upload whole arrays before the loop, which then slices them."""
    statement, loop = _statement_and_loop(code, number)
    if statement is None or loop is None:
        return []
    outer = outer_loop(code, loop)
    conversions = [part for part in conversions_in(statement) if _is_slice_of_constant(part.data, outer)]
    changed = names_changed_in_place(outer) | changed_by_functions(code, names_in(outer))
    if {root_name(part.data) for part in conversions} & changed:
        return []
    if framework in _VIEWS and conversions and (stored_names(statement) & changed or _collects_gradients(statement)):
        return []  # a view shares the array's memory, so a change in place would change the array
    lines: dict[str, str] = {}
    if conversions:
        patches = []
        for part in conversions:
            array = sliced_arrays(part.data)[0]
            name = _device_name(code, array)
            lines[name] = f"{name} = {code.rewrite(part.node, code.replace(part.data, code.text(array.value)))}"
            index = code.rewrite(part.data, code.replace(array.value, name))
            patches.append(code.replace(part.node, _selection(code, array, name, index, framework)))
        edits = patch_statement(code, statement, *patches)
    else:
        edits = []
        for owner, arrays in _implicit_slices(code, statement, loop).items():
            patches = []
            for array in arrays:
                name = _device_name(code, array)
                lines[name] = f'{name} = fb.upload_once({code.text(array.value)}, to="{framework}")'
                index = code.rewrite(array, code.replace(array.value, name))
                patches.append(code.replace(array, _selection(code, array, name, index, framework)))
            edits += patch_statement(code, owner, *patches)
    imports = import_lines(code) if any("fb." in line for line in lines.values()) else []
    return [Edit.before(outer, *imports, *lines.values()), *edits] if edits else []


def _collects_gradients(statement: ast.stmt) -> bool:
    """Whether a statement makes a tensor with `requires_grad`, whose slices would collect no gradients."""
    nodes = [*ast.walk(statement)]
    return any(isinstance(node, ast.keyword) and node.arg == "requires_grad" for node in nodes) or any(
        last_name(node) == "requires_grad_" for node in nodes
    )


def change_arrays(code: ScriptCode, number: int, change: str, torch_change: str = "") -> list[Edit]:
    """Return the edit that changes the array of line `number` by a statement before the loop.

    The list is empty unless the line uses exactly one array. `change` is an expression with `{}` for the name of the
    array. `torch_change` is the expression for an array that is a tensor of PyTorch.
    """
    statement, loop = _statement_and_loop(code, number)
    if statement is None or loop is None:
        return []
    outer = outer_loop(code, loop)
    arrays = [
        array for owner in _data_statements(code, statement, loop) for array in _sliced_constants(code, owner, outer)
    ]
    names = {array.value.id for array in arrays if isinstance(array.value, ast.Name)}
    if len(names) != 1:
        return []
    name = names.pop()
    if torch_change and root_name(code.value_of(name)) == "torch":
        return [Edit.before(outer, f"{name} = {torch_change.format(name)}")]
    imports = ["import numpy as np"] if change.startswith("np.") and not code.imports("numpy") else []
    change = re.sub(r"^np\b", code.module_alias("numpy", "np"), change)
    return [Edit.before(outer, *imports, f"{name} = {change.format(name)}")]


def convert_all_elements(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that stack the elements of a list, then convert them once."""
    statement, loop = _statement_and_loop(code, number)
    listed = listed_conversion(statement) if statement is not None else None
    if statement is None or loop is None or listed is None:
        return []
    elements, part = listed
    numpy = code.module_alias("numpy", "np")
    rows = code.rewrite(elements, code.replace(elements.elt, code.text(part.data)))
    stacked = f"{numpy}.stack({rows})"
    converted = code.rewrite(part.node, code.replace(part.data, stacked))
    parent = code.parents[elements]
    is_stacked = isinstance(parent, ast.Call) and last_name(parent) == "stack" and len(parent.args) == 1
    if isinstance(parent, ast.Call) and is_stacked and not parent.keywords:
        patch = code.replace(parent, converted)
    else:
        patch = code.replace(elements, f"[*{converted}]")
    imports = [] if code.imports("numpy") else ["import numpy as np"]
    before = [Edit.before(outer_loop(code, loop), *imports)] if imports else []
    return [*before, *patch_statement(code, statement, patch)]


def remove_call(code: ScriptCode, number: int, *names: str) -> list[Edit]:
    """Return the edit that removes the call of one of these functions.

    `names` are the parts of their names after the last dot. The list is empty unless the line has exactly one such
    call, is in a loop, and does not use the result.
    """
    statements = [code.statement_of(call) for call in code.calls(*names) if call.lineno == number]
    is_one_call = len(statements) == 1 and _is_call(statements[0])
    return [Edit.remove(code, statement) for statement in statements if is_one_call and code.loops_around(statement)]


def _is_call(statement: ast.stmt) -> bool:
    """Whether a statement is a call whose result the script does not use."""
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return is_call and not any(isinstance(node, ast.NamedExpr) for node in ast.walk(statement))


def disable_setting(code: ScriptCode, number: int, name: str) -> list[Edit]:
    """Return the edit that writes False instead of True, or removes the call of `name`."""
    statement = code.statement_at(number)
    if statement is None or isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return []
    switches = [node for node in own_nodes(statement) if isinstance(node, ast.Constant) and node.value is True]
    if len(switches) == 1:
        return patch_statement(code, statement, code.replace(switches[0], "False"))
    is_call = isinstance(statement, ast.Expr) and last_name(statement.value) == name
    return [Edit.remove(code, statement)] if is_call else []


def _statement_and_loop(code: ScriptCode, number: int) -> tuple[ast.stmt | None, ast.For | ast.While | None]:
    """Return the statement of a line, and the innermost loop around it.

    Either is None if it does not exist. A compound statement, such as a loop, does not count as a statement here.
    """
    statement = code.statement_at(number)
    if statement is None or hasattr(statement, "body"):
        return None, None
    loops = code.loops_around(statement)
    return statement, loops[0] if loops else None


def _outermost_invariant(code: ScriptCode, loop: ast.For | ast.While, nodes: Sequence[ast.expr]) -> ast.stmt:
    """Return the outermost loop in which these expressions always have the same value."""
    loops = [around for around in code.loops_around(loop) if all(is_invariant(node, around) for node in nodes)]
    return loops[-1] if loops else loop


def _is_whole_assignment(statement: ast.stmt, part: Conversion, loop: ast.stmt) -> bool:
    """Whether a statement only assigns a conversion to one name.

    In the loop, nothing else assigns this name, and nothing uses it before the statement.
    """
    if not isinstance(statement, ast.Assign) or statement.value is not part.node or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    if not isinstance(target, ast.Name):
        return False
    uses = [node for node in ast.walk(loop) if isinstance(node, ast.Name) and node.id == target.id]
    stores = [node for node in uses if not isinstance(node.ctx, ast.Load)]
    return len(stores) == 1 and min((node.lineno, node.col_offset) for node in uses) >= (
        target.lineno,
        target.col_offset,
    )


def _convert_first(
    code: ScriptCode, statement: ast.stmt, outer: ast.stmt, parts: Sequence[tuple[Conversion, str]]
) -> list[Edit]:
    """Return the edits that move conversions before the loop; the loop uses their results.

    `parts` are conversions, each with the expression that new code evaluates before the loop.
    """
    if not parts:
        return []
    texts: dict[str, str] = {}  # text -> name
    for part, text in parts:
        name = code.new_name(f"{root_name(part.data) or 'data'}_on_device")
        texts.setdefault(text, f"{name}_{len(texts)}" if name in texts.values() else name)
    named = [(part, text, texts[text]) for part, text in parts]
    lines = [f"{name} = {text}" for _, text, name in named]
    patches = [code.replace(part.node, name) for part, _, name in named]
    return [Edit.before(outer, *dict.fromkeys(lines)), *patch_statement(code, statement, *patches)]


def _constant_arguments(code: ScriptCode, statement: ast.stmt, loop: ast.stmt) -> list[ast.expr]:
    """Return the NumPy arrays that a statement passes to calls, if they never change."""
    arrays = numpy_names(code)
    return [
        argument
        for node in own_nodes(statement)
        if isinstance(node, ast.Call)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords))
        if isinstance(argument, ast.Name) and argument.id in arrays and is_invariant(argument, loop)
    ]


def _is_slice_of_constant(data: ast.expr, loop: ast.stmt) -> bool:
    """Whether data is a slice `x[...]` of an array that the loop never changes."""
    inner = data
    while isinstance(inner, ast.Subscript):
        data, inner = inner, inner.value
    return isinstance(data, ast.Subscript) and isinstance(inner, ast.Name) and is_invariant(inner, loop)


def _sliced_constants(code: ScriptCode, statement: ast.stmt, loop: ast.stmt) -> list[ast.Subscript]:
    """Return the slices of arrays in a statement, if the loop never changes these arrays."""
    arrays = [array for node in own_nodes(statement) if isinstance(node, ast.expr) for array in sliced_arrays(node)]
    changed = changed_by_functions(code, names_in(loop))
    return [
        array
        for array in dict.fromkeys(arrays)
        if is_invariant(array.value, loop) and root_name(array.value) not in changed
    ]


def _data_statements(code: ScriptCode, statement: ast.stmt, loop: ast.For | ast.While) -> list[ast.stmt]:
    """Return a statement, and the statements of its loop that assign the names it reads."""
    read = {node.id for node in own_nodes(statement) if isinstance(node, ast.Name)}
    makers = [
        other
        for other in loop.body
        if isinstance(other, ast.Assign) and other is not statement and stored_names(*other.targets) & read
    ]
    return [statement, *makers]


def _implicit_slices(
    code: ScriptCode, statement: ast.stmt, loop: ast.For | ast.While
) -> dict[ast.stmt, list[ast.Subscript]]:
    """Return, for each statement, its slices of NumPy arrays that the loop does not change.

    Functions that get these slices convert them.
    """
    arrays, outer = numpy_names(code), outer_loop(code, loop)
    found = {
        owner: [array for array in _sliced_constants(code, owner, outer) if names_in(array.value) & arrays]
        for owner in _data_statements(code, statement, loop)
    }
    return {owner: slices for owner, slices in found.items() if slices}


def _device_name(code: ScriptCode, array: ast.Subscript) -> str:
    return code.new_name(f"{code.text(array.value)}_on_device")


def _selection(code: ScriptCode, array: ast.Subscript, name: str, index: str, framework: str) -> str:
    """Return code that selects rows on the device.

    TensorFlow slices a tensor by `[...]`, but selects rows by their numbers with `tf.gather`.
    """
    if framework != "tensorflow" or _is_slice(code, array.slice):
        return index
    return f"{code.module_alias('tensorflow', 'tf')}.gather({name}, {code.text(array.slice)})"


def _is_slice(code: ScriptCode, index: ast.expr) -> bool:
    value = code.value_of(index.id) if isinstance(index, ast.Name) else None
    is_made = value is not None and last_name(value) == "slice"
    return is_made or isinstance(index, ast.Slice | ast.Constant | ast.Tuple | ast.BinOp)

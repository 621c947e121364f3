"""The edit that page-locks an array of which a loop uploads slices."""

import ast

from forebay.doctor.analyse.loop_code import conversions_in, is_invariant, numpy_names
from forebay.doctor.analyse.script_code import Patch, ScriptCode, last_name, names_in, root_name
from forebay.doctor.rules.called_code import changed_by_functions
from forebay.doctor.rules.edits import Edit
from forebay.doctor.rules.input_edits import outer_loop, patch_statement

__all__ = ["pin_array"]

# Methods of tensors that convert each row on its own.
_ROW_METHODS = frozenset({"float", "double", "half", "long", "contiguous", "pin_memory"})


def pin_array(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that page-lock the array of which a line uploads slices.

    A slice of a page-locked tensor of PyTorch is page-locked too. Rows selected by row numbers would be a new, pageable
    tensor, so they need another cure.
    """
    statement = code.statement_at(number)
    if statement is None or hasattr(statement, "body") or not code.loops_around(statement):
        return []
    outer, patches = outer_loop(code, statement), list[Patch]()
    changed = changed_by_functions(code, names_in(outer))
    names: dict[str, str] = {}  # expression -> name of its page-locked tensor
    for part in conversions_in(statement):
        target = next((node for node in ast.walk(part.node) if last_name(node) in ("to", "cuda")), None)
        if not isinstance(target, ast.Call) or not isinstance(target.func, ast.Attribute) or len(target.args) > 1:
            continue
        tensor = target.func.value
        array = _slice_of_tensor(code, tensor)
        if array is None or not is_invariant(array.value, outer) or root_name(array) in changed:
            continue
        whole = code.rewrite(tensor, code.replace(array, code.text(array.value)))
        name = code.new_name(f"{code.text(array.value)}_pinned")
        name = names.setdefault(whole, f"{name}_{len(names)}" if name in names.values() else name)
        patches.append(code.replace(tensor, code.rewrite(array, code.replace(array.value, name))))
        patches.append(code.set_keyword(target, "non_blocking", "True"))
    lines = [f"{name} = {whole}.pin_memory()" for whole, name in names.items()]
    return [Edit.before(outer, *lines), *patch_statement(code, statement, *patches)] if patches else []


def _slice_of_tensor(code: ScriptCode, node: ast.expr) -> ast.Subscript | None:
    """Return the slice `x[a:b]` from which an expression makes a tensor, row by row.

    The same expression with `x` instead of the slice then makes a tensor of all rows. Return None for other
    expressions, and for an `x` that may be a list.
    """
    is_tensor = True  # only a tensor has the methods
    while isinstance(node, ast.Call):
        function, name = node.func, last_name(node)
        if isinstance(function, ast.Attribute) and name in _ROW_METHODS and not node.args and not node.keywords:
            node = function.value
            continue
        has_dtype = all(each.arg == "dtype" and isinstance(each.value, ast.Attribute) for each in node.keywords)
        if name not in ("from_numpy", "as_tensor", "tensor") or len(node.args) != 1 or not has_dtype:
            return None
        node, is_tensor = node.args[0], name == "from_numpy"
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return None
    array = node.value.id
    is_known = is_tensor or array in numpy_names(code) or root_name(code.value_of(array)) == "torch"
    return node if is_known and isinstance(node.slice, ast.Slice) else None

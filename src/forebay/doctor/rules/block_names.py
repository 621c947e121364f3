"""The names that a block of statements needs from the code around it, and those that this code needs from the block.

Edits use them for the parameters and the results of a function to which the block moves.
"""

import ast
import builtins
from collections.abc import Collection, Iterable, Iterator, Sequence

from forebay.doctor.analyse.script_code import ScriptCode, names_in, root_name, stored_names

__all__ = ["names_outside", "names_read_first"]


def names_read_first(block: Sequence[ast.stmt], outside: Collection[ast.AST] = ()) -> Iterator[str]:
    """Yield the names that statements read before they assign them, except at nodes `outside`."""
    assigned, seen = set(dir(builtins)), set[str]()
    for statement in _in_order_of_execution(block):
        local = {
            name
            for node in ast.walk(statement)
            if isinstance(node, ast.comprehension)
            for name in names_in(node.target)
        }
        loaded = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        loaded = [node for node in loaded if node not in outside]
        names = [node.id for node in sorted(loaded, key=lambda node: (node.lineno, node.col_offset))]
        if isinstance(statement, ast.AugAssign):
            names.insert(0, root_name(statement.target))
        for name in names:
            if name not in assigned | local | seen:
                seen.add(name)
                yield name
        assigned |= stored_names(statement)


def _in_order_of_execution(block: Iterable[ast.stmt]) -> Iterator[ast.stmt | ast.expr]:
    """Yield statements, and the parts of `with` and `for` statements, in the order in which they run."""
    for statement in block:
        if isinstance(statement, ast.With):
            for item in statement.items:
                yield item.context_expr
                yield from filter(None, [item.optional_vars])
            yield from _in_order_of_execution(statement.body)
        elif isinstance(statement, ast.For):
            yield statement.iter
            yield statement.target
            yield from _in_order_of_execution(statement.body)
        else:
            yield statement


def names_outside(code: ScriptCode, block: Sequence[ast.stmt]) -> set[str]:
    """Return the names whose values after a block are needed.

    Code outside of the block reads these names; or the block itself reads them in the next step, before it assigns
    them.
    """
    inside = {node for statement in block for node in ast.walk(statement)}
    scope = code.function_around(block[0]) or code.tree
    read = {
        node.id
        for node in ast.walk(scope)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in inside
    }
    augmented = {
        root_name(node.target) for node in ast.walk(scope) if isinstance(node, ast.AugAssign) and node not in inside
    }
    return read | augmented | set(names_read_first(block))

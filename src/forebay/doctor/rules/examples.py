"""A mark for the code of cures that is only an example.

Example code uses names that the script does not have, so the user must replace them.
"""

import ast
import builtins
from collections.abc import Iterator
from dataclasses import replace

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.script_code import script_code
from forebay.doctor.rules.edits import is_fitted
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import has_excerpt

__all__ = ["EXAMPLE", "mark_examples"]

EXAMPLE = "# An example: put in the names and shapes of the script."
_MARK = "# An example:"
# Names of modules, as scripts and examples write them.
_MODULES = frozenset({"cp", "cupy", "fb", "forebay", "jax", "jnp", "keras", "np", "numpy", "os", "tf", "torch"})


def mark_examples(view: CaptureView, finding: Finding) -> Finding:
    """Return the finding with the comment EXAMPLE before the example code of its cures.

    If the capture has no excerpt of the script, all code is example code, and none gets the comment.
    """
    code = script_code(view, finding.line)
    if code is None or not has_excerpt(view, finding.line):
        return finding
    return replace(finding, cures=tuple(_mark(cure, code.all_names) for cure in finding.cures))


def _mark(cure: Cure, known: frozenset[str]) -> Cure:
    """Return the cure, with EXAMPLE before its code if the code uses unknown names."""
    is_marked = is_fitted(cure.code) or cure.code.startswith(_MARK)
    return cure if is_marked or not _unknown_names(cure.code, known) else replace(cure, code=f"{EXAMPLE}\n{cure.code}")


def _unknown_names(code: str, known: frozenset[str]) -> set[str]:
    """Return the names that code uses but does not define, except those in `known`.

    The result is empty if the code is not Python, such as a command of the shell.
    """
    try:
        names = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)]
        defined = {name for node in ast.walk(ast.parse(code)) for name in _defined_names(node)}
    except SyntaxError:
        return set()
    return {node.id for node in names} - defined - known - _MODULES - {*dir(builtins)}


def _defined_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement or an argument defines."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]

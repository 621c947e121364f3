"""Excerpts of the profiled script: the statements that the code of a cure must fit.

The code of a cure uses the script's own names, batch size and calls. So an excerpt contains the recorded lines with
their loops and functions, the loops that call these functions, and the definitions of the names that all these
statements read. It also contains the imports, the test of `__name__` and the calls in `_CALLS`. It contains no comments
and no docstrings, and `pass` replaces other statements. `model.redaction.without_source` removes the excerpts from a
capture.
"""

import ast
import io
import linecache
import tokenize
from collections.abc import Iterable, Iterator
from typing import Any

from forebay.core.parsing import first_line, parse_with_retries
from forebay.doctor.capture.notebook_cells import cell_name

__all__ = ["excerpt_files", "excerpt_source"]

MAX_FILES = 20  # of a capture; further files get no excerpt
MAX_SOURCE_LINES = 20_000  # of a file; longer files are generated code and get no excerpt
MAX_EXCERPT_LINES = 1500  # of a file; a file with a longer excerpt gets none
MAX_STATEMENT_LINES = 60  # a longer assignment is a table of data, not code
ROUNDS = 3  # how many assignments back the excerpt follows a name
# Calls of functions with these names decide which cures fit. The names are without module or object.
_CALLS = frozenset(
    {"DataLoader", "compile", "fit", "fit_generator", "train_on_batch", "jit", "function", "device", "autocast"}
    | {"batch", "map", "prefetch", "from_generator", "from_tensor_slices", "set_float32_matmul_precision", "parameters"}
    | {"BatchSampler", "glob", "from_batches", "feed"}
)
_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)


def excerpt_files(locations: Iterable[tuple[str, int, str]]) -> dict[str, Any]:
    """Return the excerpts of the files in `locations` as JSON values; empty without excerpts.

    Each location is a recorded line: file, line number, function.
    """
    numbers: dict[str, set[int]] = {}
    for file, number, _ in locations:
        numbers.setdefault(file, set()).add(number)
    excerpts = []
    for file, recorded in list(numbers.items())[:MAX_FILES]:
        lines = excerpt_source("".join(linecache.getlines(file)), recorded)
        if lines:
            name, rows = cell_name(file) or file, [[number, text] for number, text in lines.items()]
            excerpts.append({"file": name, "lines": rows})
    return {"files": excerpts} if excerpts else {}


def excerpt_source(source: str, recorded: set[int]) -> dict[int, str]:
    """Return the excerpt of a file: line number -> text.

    The result is empty if Python cannot parse the source, or if the source or its excerpt is too long. `recorded` are
    the numbers of the recorded lines. The lines of the excerpt, at their numbers, are valid Python: `pass` replaces the
    statements that are left out.
    """
    if not source.strip() or source.count("\n") > MAX_SOURCE_LINES:
        return {}
    try:
        tree = parse_with_retries(lambda: ast.parse(source))
        lines = _excerpt_lines(tree, _without_comments(source), _Selection(tree, recorded).statements)
        parse_with_retries(lambda: ast.parse(_join(lines)))
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return {}
    return lines if len(lines) <= MAX_EXCERPT_LINES else {}


class _Selection:
    """The statements of a script that belong to its excerpt."""

    def __init__(self, tree: ast.Module, recorded: set[int]) -> None:
        self.statements: set[ast.stmt] = set()
        self._all = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
        self._recorded = recorded
        for statement in self._all:
            if self._is_selected(statement):
                self._add_all(statement) if self._is_whole(statement) else self.statements.add(statement)
        for _ in range(ROUNDS):
            self._add_calling_loops()
            self._add_definitions()

    def _is_selected(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Import | ast.ImportFrom) or self._is_recorded(statement):
            return True
        if isinstance(statement, ast.If) and "__name__" in _names_in(statement.test):
            return True
        return bool(_CALLS & _called_names(statement)) and not _is_long(statement)

    def _is_recorded(self, statement: ast.stmt) -> bool:
        return any(number in self._recorded for number in range(first_line(statement), _last(statement) + 1))

    def _is_whole(self, statement: ast.stmt) -> bool:
        """Whether the excerpt contains all statements inside this statement.

        This holds for loops and functions with a recorded line.
        """
        if isinstance(statement, _LOOPS):
            return self._is_recorded(statement)
        return isinstance(statement, _FUNCTIONS) and self._is_recorded(statement)

    def _add_all(self, statement: ast.stmt) -> None:
        self.statements.update(
            node for node in ast.walk(statement) if isinstance(node, ast.stmt) and not _is_docstring(node)
        )

    def _add_calling_loops(self) -> None:
        """Add the loops that call the recorded functions."""
        functions = {
            statement.name for statement in self._all if isinstance(statement, _FUNCTIONS) and self._is_whole(statement)
        }
        for statement in self._all:
            if isinstance(statement, _LOOPS) and functions & _all_called_names(statement):
                self._add_all(statement)

    def _add_definitions(self) -> None:
        """Add the assignments, functions and classes of the names that the excerpt reads."""
        names = {name for statement in self.statements for name in _own_names(statement)}
        for statement in self._all:
            if isinstance(statement, _SCOPES):
                if statement.name in names:
                    self._add_all(statement)
            elif _assigned_names(statement) & names and not _is_long(statement):
                self.statements.add(statement)


def _without_comments(source: str) -> list[str]:
    """Return the lines of a source without comments."""
    texts = source.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            number, column = token.start
            texts[number - 1] = texts[number - 1][:column].rstrip()
    return texts


def _excerpt_lines(tree: ast.Module, texts: list[str], statements: set[ast.stmt]) -> dict[int, str]:
    lines: dict[int, str] = {}
    for statement in tree.body:
        _add_lines(statement, texts, statements, lines)
    return dict(sorted(lines.items()))


def _add_lines(statement: ast.stmt, texts: list[str], statements: set[ast.stmt], lines: dict[int, str]) -> None:
    """Add the lines of a statement, or `pass` if the excerpt leaves it out."""
    children = [child for child in ast.walk(statement) if isinstance(child, ast.stmt) and child is not statement]
    if statement not in statements and not any(child in statements for child in children):
        indentation = texts[first_line(statement) - 1][: statement.col_offset]
        if not indentation.strip():
            lines.setdefault(first_line(statement), f"{indentation}pass")
        return
    nested = {number for child in children for number in range(first_line(child), _last(child) + 1)}
    for number in range(first_line(statement), _last(statement) + 1):
        text = texts[number - 1]
        if number == first_line(statement) or (number not in nested and text):
            lines[number] = text
    for child in _direct_children(statement):
        _add_lines(child, texts, statements, lines)


def _direct_children(statement: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield child
        elif not isinstance(child, ast.expr):  # an exception handler or a case of `match`
            yield from _direct_children(child)


def _join(lines: dict[int, str]) -> str:
    return "\n".join(lines.get(number, "") for number in range(1, max(lines, default=0) + 1))


def _last(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _is_long(statement: ast.stmt) -> bool:
    is_simple = not any(True for _ in _direct_children(statement))
    return is_simple and _last(statement) - first_line(statement) >= MAX_STATEMENT_LINES


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, without those of the statements inside it."""
    pending: list[ast.AST] = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    while pending:
        node = pending.pop()
        yield node
        pending += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]


def _own_names(statement: ast.stmt) -> set[str]:
    return {node.id for node in _own_nodes(statement) if isinstance(node, ast.Name)}


def _names_in(expression: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def _called_names(statement: ast.stmt) -> set[str]:
    functions = [node.func for node in _own_nodes(statement) if isinstance(node, ast.Call)]
    return {str(getattr(function, "attr", getattr(function, "id", ""))) for function in functions}


def _all_called_names(statement: ast.stmt) -> set[str]:
    inner = [node for node in ast.walk(statement) if isinstance(node, ast.stmt)]
    return {name for node in inner for name in _called_names(node)}


def _assigned_names(statement: ast.stmt) -> set[str]:
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.With):
        return set()
    return {node.id for node in _own_nodes(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}

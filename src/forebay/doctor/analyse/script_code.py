"""The parsed excerpt of a script: its statements, loops, functions, names, and changes of them."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

from forebay.core.parsing import first_line, parse_with_retries
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.events import Line

__all__ = [
    "FUNCTIONS",
    "Patch",
    "ScriptCode",
    "last_name",
    "names_in",
    "own_nodes",
    "root_name",
    "script_code",
    "stored_names",
]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MAX_CHARACTERS = 2_000_000  # of the parsed source; a damaged capture may name a line number that needs more


def script_code(view: CaptureView, line: Line | None) -> "ScriptCode | None":
    """Return the code of the file of a line; None if the capture lacks it."""
    if line is None:
        return None
    codes = _codes.setdefault(view, {})
    if line.file not in codes:
        codes[line.file] = _parse(view, line.file)
    return codes[line.file]


_codes: WeakKeyDictionary[CaptureView, dict[str, "ScriptCode | None"]] = WeakKeyDictionary()


def _parse(view: CaptureView, file: str) -> "ScriptCode | None":
    excerpts = (view.capture.facts.get("script") or {}).get("files", [])
    lines = next((dict(excerpt["lines"]) for excerpt in excerpts if excerpt["file"] == file), {})
    if not lines or max(lines) + sum(map(len, lines.values())) > _MAX_CHARACTERS:
        return None
    source = "\n".join(lines.get(number, "") for number in range(1, max(lines) + 1))
    try:
        return ScriptCode(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class Patch(NamedTuple):
    """A change of source code: `text` replaces the bytes from `start` to `end`."""

    start: int
    end: int
    text: str


class ScriptCode:
    """Parsed source code, with `ast` nodes. The constructor raises SyntaxError for invalid code."""

    def __init__(self, source: str) -> None:
        self.tree = parse_with_retries(lambda: ast.parse(source))
        self._lines = [line.encode() for line in source.split("\n")]  # columns of `ast` count bytes of UTF-8
        self.parents = {child: parent for parent in ast.walk(self.tree) for child in ast.iter_child_nodes(parent)}

    # Text

    def text(self, node: ast.expr | ast.stmt) -> str:
        """Return the source text of a node, without the indentation of its first line."""
        return self.rewrite(node)

    def rewrite(self, node: ast.expr | ast.stmt, *patches: Patch) -> str:
        """Return the source text of a node with the changes of `patches`."""
        end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
        return self._rewrite((node.lineno, node.col_offset), end, patches)

    def rewrite_header(self, statement: ast.stmt, *patches: Patch) -> str | None:
        """Return the changed header of a compound statement; None if its body follows inline."""
        body: list[ast.stmt] = getattr(statement, "body", [])
        if not body or body[0].lineno == statement.lineno:
            return None
        last = self.header_end(statement)
        end = last, len(self._lines[last - 1].rstrip())
        return self._rewrite((statement.lineno, statement.col_offset), end, patches)

    def replace(self, node: ast.expr, text: str) -> Patch:
        """Return the change that replaces an expression."""
        return Patch(self._offset(node.lineno, node.col_offset), self._end(node), text)

    def append(self, node: ast.expr, text: str) -> Patch:
        """Return the change that adds text after an expression, such as a method call."""
        return Patch(self._end(node), self._end(node), text)

    def set_keyword(self, call: ast.Call, name: str, value: str) -> Patch:
        """Return the change that sets a keyword argument of a call."""
        return self.set_keywords(call, {name: value})[0]

    def set_keywords(self, call: ast.Call, values: Mapping[str, str], *, instead_of: str = "") -> list[Patch]:
        """Return the changes that set keyword arguments of a call and remove `instead_of`."""
        present = {keyword.arg: keyword for keyword in call.keywords}
        patches = [self.replace(present[name].value, value) for name, value in values.items() if name in present]
        new = ", ".join(f"{name}={value}" for name, value in values.items() if name not in present)
        old = present.get(instead_of)
        if old is not None and new:
            return [*patches, Patch(self._offset(old.lineno, old.col_offset), self._end(old), new)]
        if old is not None and (removal := self.remove_keyword(call, instead_of)):
            return [*patches, removal]
        if not new:
            return patches
        end = self._end(call) - 1
        ends = [*map(self._end, call.args), *map(self._end, call.keywords)]
        rest = re.sub(rb"#.*", b"", self._source[max(ends, default=end) : end])  # may be a comma after the arguments
        return [*patches, Patch(end, end, f"{', ' if ends and b',' not in rest else ''}{new}")]

    def remove_keyword(self, call: ast.Call, name: str) -> Patch | None:
        """Return the change that removes a keyword argument and one comma, or None."""
        arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        for index, argument in enumerate(arguments):
            if isinstance(argument, ast.keyword) and argument.arg == name:
                start, end = self._offset(argument.lineno, argument.col_offset), self._end(argument)
                if index:
                    start = self._source.rindex(b",", 0, start)
                elif len(arguments) > 1:
                    end = self._offset(arguments[1].lineno, arguments[1].col_offset)
                return Patch(start, end, "")
        return None

    def replace_in_lines(self, statement: ast.stmt, text: str) -> str | None:
        """Return a statement's lines with `text` in its place; None without other code on them."""
        first, last = statement.lineno, statement.end_lineno or statement.lineno
        before = self._lines[first - 1][: statement.col_offset].decode().lstrip()
        after = self._lines[last - 1][statement.end_col_offset :].decode().rstrip()
        return before + text + after if before or after.lstrip(" ;").split("#")[0] else None

    def follows_on_line(self, statement: ast.stmt) -> bool:
        """Whether other code precedes a statement on its first line."""
        return bool(self._lines[first_line(statement) - 1][: statement.col_offset].strip())

    def header_end(self, statement: ast.stmt) -> int:
        """Return the last line of the header of a compound statement."""
        body: list[ast.stmt] = getattr(statement, "body", [])
        number = first_line(body[0]) - 1
        while number > statement.lineno and not self._lines[number - 1].strip():
            number -= 1
        return number

    def _rewrite(self, start: tuple[int, int], end: tuple[int, int], patches: Iterable[Patch]) -> str:
        pieces, position = [], self._offset(*start)
        for patch in sorted(patches, key=lambda patch: patch[:2]):
            pieces += [self._source[position : patch.start].decode(), patch.text]
            position = patch.end
        text = "".join([*pieces, self._source[position : self._offset(*end)].decode()])
        return "\n".join(_dedent(line, start[1]) if index else line for index, line in enumerate(text.split("\n")))

    @cached_property
    def _source(self) -> bytes:
        return b"\n".join(self._lines)

    def _offset(self, number: int, column: int) -> int:
        return self._line_starts[number - 1] + column

    def _end(self, node: ast.expr | ast.keyword) -> int:
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    @cached_property
    def _line_starts(self) -> list[int]:
        starts, position = [], 0
        for line in self._lines:
            starts.append(position)
            position += len(line) + 1
        return starts

    # Places

    def statement_at(self, number: int) -> ast.stmt | None:
        """Return the innermost statement of a line; None if the excerpt lacks the line."""
        found = None
        for node in self.statements:
            if first_line(node) <= number <= (node.end_lineno or node.lineno):
                found = node if found is None or node.lineno >= found.lineno else found
        return None if isinstance(found, ast.Pass) else found

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, the nearest first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function_around(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        return next((parent for parent in self.ancestors(node) if isinstance(parent, FUNCTIONS)), None)

    def loops_around(self, node: ast.AST) -> list[ast.For | ast.While]:
        """Return the loops around a node in the same function, the innermost first."""
        loops: list[ast.For | ast.While] = [node] if isinstance(node, ast.For | ast.While) else []
        for parent in self.ancestors(node):
            if isinstance(parent, FUNCTIONS):
                break
            if isinstance(parent, ast.For | ast.While):
                loops.append(parent)
        return loops

    def device_scope(self, node: ast.AST) -> ast.With | None:
        """Return the innermost `with tf.device(...)` around a node, or None."""
        for parent in self.ancestors(node):
            if isinstance(parent, ast.With) and any(last_name(item.context_expr) == "device" for item in parent.items):
                return parent
        return None

    def is_alone(self, statement: ast.stmt) -> bool:
        """Whether a statement is the only one of its block, which must not become empty."""
        parent = self.parents.get(statement)
        blocks = [getattr(parent, name, None) for name in ("body", "orelse", "finalbody")]
        return [statement] in blocks

    # Definitions

    @cached_property
    def statements(self) -> list[ast.stmt]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt)]

    def function(self, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Return the function with this name; None unless the file defines exactly one."""
        found = [node for node in self.statements if isinstance(node, FUNCTIONS) and node.name == name]
        return found[0] if len(found) == 1 else None

    def class_named(self, name: str) -> ast.ClassDef | None:
        return next((node for node in self.statements if isinstance(node, ast.ClassDef) and node.name == name), None)

    def value_of(self, name: str) -> ast.expr | None:
        """Return the only expression that the script assigns to a name, or None."""
        values = [
            node.value if {name} == stored_names(*_targets(node)) else None
            for node in self.statements
            if isinstance(node, ast.Assign | ast.AnnAssign) and name in stored_names(*_targets(node))
        ]
        return values[0] if len(values) == 1 else None

    def calls(self, *names: str) -> list[ast.Call]:
        """Return the calls of functions with these last names, in the order of the source."""
        found = [node for node in self.parents if isinstance(node, ast.Call) and last_name(node.func) in names]
        return sorted(found, key=lambda call: (call.lineno, call.col_offset))

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """Return the innermost statement that contains a node."""
        return next(parent for parent in (node, *self.ancestors(node)) if isinstance(parent, ast.stmt))

    def module_alias(self, module: str, default: str) -> str:
        """Return the name under which the script imports a module, or `default`."""
        for node in self.statements:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name == module:
                        return alias.asname or alias.name
        return default

    def imported_name(self, module: str, name: str) -> str | None:
        """Return the name that `from module import name` binds, or None without this import."""
        for node in self.statements:
            if isinstance(node, ast.ImportFrom) and node.module == module:
                found = [alias.asname or alias.name for alias in node.names if alias.name == name]
                if found:
                    return found[0]
        return None

    def imports(self, module: str) -> bool:
        imports = [node for node in self.statements if isinstance(node, ast.Import)]
        return any(alias.name == module for node in imports for alias in node.names)

    @cached_property
    def has_main_guard(self) -> bool:
        """Whether the script has a block `if __name__ == "__main__":`."""
        return any(isinstance(node, ast.If) and "__name__" in names_in(node.test) for node in self.tree.body)

    @cached_property
    def all_names(self) -> frozenset[str]:
        parameters = {node.arg for node in ast.walk(self.tree) if isinstance(node, ast.arg)}
        return frozenset(names_in(self.tree) | stored_names(self.tree) | parameters)

    def new_name(self, name: str) -> str:
        """Return a name that the script does not use yet."""
        while name in self.all_names:
            name += "_"
        return name


def _targets(statement: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def last_name(node: ast.AST | None) -> str:
    """Return `c` for the expressions `c`, `a.b.c` and `a.b.c(...)`; else an empty string."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def root_name(node: ast.AST | None) -> str:
    """Return the first name of an expression, such as `a` for `a.b()[0].c`, or ""."""
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def names_in(*nodes: ast.AST) -> set[str]:
    return {node.id for root in nodes for node in ast.walk(root) if isinstance(node, ast.Name)}


def stored_names(*nodes: ast.AST) -> set[str]:
    """Return the names that nodes assign, change or delete, also inside of loops and blocks.

    Names that comprehensions and lambdas define do not count, because they are local there.
    """
    found: set[str] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.comprehension | ast.arguments):
            continue
        name = getattr(node, "rest", None) if isinstance(node, ast.MatchMapping) else getattr(node, "name", None)
        if isinstance(node, ast.alias):
            name = node.asname or node.name.partition(".")[0]
        found.add(
            name if isinstance(name, str) else ""
        )  # of a function, class, import, caught error or captured pattern
        if isinstance(node, ast.Name | ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(root_name(node))
        pending += ast.iter_child_nodes(node)
    return found - {""}


def own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement, outer ones first, without statements inside it."""
    pending = list(_expressions(ast.iter_child_nodes(statement)))
    while pending:
        node = pending.pop(0)
        yield node
        pending += _expressions(ast.iter_child_nodes(node))


def _expressions(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    return (node for node in nodes if not isinstance(node, ast.stmt))


def _dedent(line: str, columns: int) -> str:
    return line[columns:] if not line[:columns].strip() else line.lstrip()

"""Edits of scripts. An edit names a variable, a call or a line, and quotes no code.

An edit keeps the number and the order of the lines, so that a report names the lines of the public file. Only
`mark_steps`, `decorate`, `move_to_function` and `insert_before` add lines.
"""

import ast
from collections.abc import Callable, Iterator, Mapping

from tests.support.parsing import parse

Edit = Callable[[str], str]
MARK = '__import__("step_clock").mark()'
Span = tuple[int, int, str]  # start and end in bytes, and the text in their place


def set_values(values: Mapping[str, str]) -> Edit:
    """Replace the literals of names: in assignments, keyword arguments, parameter defaults and keys of dictionaries."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for name, value in _named_values(tree):
            if name in values and _is_literal(value):
                yield *place.of(value), values[name]

    return _edit(spans, f"no literal for {', '.join(values)}")


def set_literal(old: object, new: str) -> Edit:
    """Write another literal wherever a number or a string occurs."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and type(node.value) is type(old) and node.value == old:
                yield *place.of(node), new

    return _edit(spans, f"no literal {old!r}")


def set_range(variable: str, count: int) -> Edit:
    """Let the loops over a variable run `count` times."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for node in ast.walk(tree):
            if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == variable:
                yield *place.of(node.iter), f"range({count})"

    return _edit(spans, f"no loop over {variable}")


def call_instead(name: str, function: str, *arguments: str) -> Edit:
    """Call another function in place of `name`, with `arguments` before those of the script."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for call in _calls(tree, name):
            start, end = place.of(call.func)
            yield start, end, function
            if arguments:
                opening = place.text.index(b"(", end) + 1
                yield opening, opening, ", ".join(arguments) + (", " if call.args or call.keywords else "")

    return _edit(spans, f"no call of {name}")


def set_arguments(name: str, arguments: str) -> Edit:
    """Write other arguments in the calls of a function."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for call in _calls(tree, name):
            end = place.of(call)[1]
            opening = place.text.index(b"(", place.of(call.func)[1]) + 1
            lines = place.text.count(b"\n", opening, end)
            yield opening, end - 1, arguments + "\n" * lines

    return _edit(spans, f"no call of {name}")


def drop_keyword(name: str, keyword: str) -> Edit:
    """Remove a keyword argument from the calls of a function."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for call in _calls(tree, name):
            for each in call.keywords:
                if each.arg == keyword:
                    start, end = place.of(each)
                    before = place.text[:start].rstrip()
                    yield len(before) - before.endswith(b","), end, ""

    return _edit(spans, f"no {keyword} in a call of {name}")


def rename_keyword(name: str, old: str, new: str) -> Edit:
    """Rename a keyword argument in the calls of a function."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for call in _calls(tree, name):
            for each in call.keywords:
                if each.arg == old:
                    start = place.of(each)[0]
                    yield start, start + len(old), new

    return _edit(spans, f"no {old} in a call of {name}")


def add_arguments(name: str, arguments: str) -> Edit:
    """Add arguments after those of the script."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for call in _calls(tree, name):
            end = place.of(call)[1] - 1
            before = place.text[:end].rstrip()
            is_first = not call.args and not call.keywords
            yield len(before), len(before), ("" if is_first or before.endswith(b",") else ", ") + arguments

    return _edit(spans, f"no call of {name}")


def wrap_call(name: str, before: str, after: str) -> Edit:
    """Write text around the calls of a function."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for call in _calls(tree, name):
            yield from _around(place.of(call), before, after)

    return _edit(spans, f"no call of {name}")


def wrap_value(name: str, before: str, after: str) -> Edit:
    """Write text around the values that are assigned to a name."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and _has_target(node, name):
                yield from _around(place.of(node.value), before, after)

    return _edit(spans, f"no value for {name}")


def rename_attribute(old: str, new: str) -> Edit:
    """Rename an attribute wherever the script uses it."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == old:
                end = place.of(node)[1]
                yield end - len(old), end, new

    return _edit(spans, f"no attribute {old}")


def call_item(attribute: str) -> Edit:
    """Call `item` in place of the index 0 of an attribute, such as `data` of a loss before PyTorch 0.4."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for node in ast.walk(tree):
            match node:
                case ast.Subscript(value=ast.Attribute(attr=name) as value, slice=ast.Constant(value=0)):
                    if name == attribute:
                        yield place.of(value)[1], place.of(node)[1], ".item()"

    return _edit(spans, f"no {attribute}[0]")


def import_instead(name: str, statement: str) -> Edit:
    """Replace the statement that imports a name."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom) and any(
                name in (alias.name, alias.asname) for alias in node.names
            ):
                yield *place.of(node), statement

    return _edit(spans, f"no import of {name}")


def decorate(function: str, decorator: str) -> Edit:
    """Decorate a function of the script. This adds a line."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == function:
                start = place.of(node)[0]
                yield start, start, f"@{decorator}\n" + " " * node.col_offset

    return _edit(spans, f"no function {function}")


def move_to_function(lines: tuple[int, int], function: str, outputs: str, *, before_line: int) -> Edit:
    """Make a function of some lines of a loop, so that a decorator can compile them.

    `lines` are the first and the last line to move. `function` is the decorator and the `def` line. The function comes
    before `before_line`, the line of the loop, and returns `outputs`. A call of it replaces the moved lines. A mark of
    the step stays in the loop.
    """

    def edit(text: str) -> str:
        rows = text.splitlines()
        first, last = lines
        mark = f"{MARK}; " if MARK in rows[first - 1] else ""
        body = [row.replace(mark, "") for row in rows[first - 1 : last]]
        outer, inner = (row[: len(row) - len(row.lstrip())] for row in (rows[before_line - 1], body[0]))
        moved = [*(outer + row for row in function.splitlines()), *body, f"{inner}return {outputs}"]
        call = f"{inner}{mark}{outputs} = {function.partition('def ')[2].rstrip(':')}"
        return (
            "\n".join([*rows[: before_line - 1], *moved, *rows[before_line - 1 : first - 1], call, *rows[last:]]) + "\n"
        )

    return edit


def insert_before(line: int, statement: str) -> Edit:
    """Write a statement before a line, with the same indentation. This adds a line."""

    def edit(text: str) -> str:
        rows = text.splitlines()
        row = rows[line - 1]
        return "\n".join([*rows[: line - 1], row[: len(row) - len(row.lstrip())] + statement, *rows[line - 1 :]]) + "\n"

    return edit


def drop_call(name: str) -> Edit:
    """Replace the calls of a function by None."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for call in _calls(tree, name):
            yield *place.of(call), "None"

    return _edit(spans, f"no call of {name}")


def mark_steps(line: int | str) -> Edit:
    """Let the module `step_clock` time the steps.

    A step is an iteration of the loop in this line, a call of the function that this line defines, or, with "fit", a
    batch of every call of `fit`. A mark adds a line only in front of a compound statement.
    """
    if line == "fit":
        return wrap_function("fit", '__import__("step_clock").mark_batches(', ")")

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for node in ast.walk(tree):
            if isinstance(node, ast.For | ast.While | ast.FunctionDef) and node.lineno == line:
                first = node.body[0]
                start = place.of(first)[0]
                end = "\n" + " " * first.col_offset if hasattr(first, "body") else "; "
                yield start, start, MARK + end

    return _edit(spans, f"no loop or function in line {line}")


def wrap_function(name: str, before: str, after: str) -> Edit:
    """Write text around the function in the calls of this name, without its arguments."""

    def spans(tree: ast.AST, place: "_Places") -> Iterator[Span]:
        for call in _calls(tree, name):
            yield from _around(place.of(call.func), before, after)

    return _edit(spans, f"no call of {name}")


class _Places:
    """Positions of syntax nodes in the bytes of a text; the columns of `ast` count bytes."""

    def __init__(self, text: str) -> None:
        self.text = text.encode()
        self._starts = [0]
        for line in self.text.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)

    def of(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt | ast.keyword)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset


def _edit(find: Callable[[ast.AST, _Places], Iterator[Span]], missing: str) -> Edit:
    """Return an edit that replaces all spans, and that fails if there is none."""

    def edit(text: str) -> str:
        place = _Places(text)
        spans = sorted(find(parse(text), place), key=lambda span: span[:2])
        if not spans:
            raise ValueError(f"the script has {missing}. Compare the recipe with the script.")
        data = place.text
        for start, end, new in reversed(spans):
            data = data[:start] + new.encode() + data[end:]
        return data.decode()

    return edit


def _named_values(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield names and the values that the script gives them."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.keyword(arg=str(name), value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.arguments():
                plain = [*node.posonlyargs, *node.args]
                pairs = [*zip(plain[len(plain) - len(node.defaults) :], node.defaults, strict=True)]
                pairs += [(arg, value) for arg, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value]
                yield from ((arg.arg, value) for arg, value in pairs)
            case ast.Dict():
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield key.value, value


def _is_literal(value: ast.expr) -> bool:
    """Return whether a value is a literal or a calculation with literals."""
    if isinstance(value, ast.BinOp):
        return _is_literal(value.left) and _is_literal(value.right)
    return isinstance(value, ast.Constant)


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    """Yield the calls whose function has this last name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last_name(node.func) == name:
            yield node


def _last_name(function: ast.expr) -> str | None:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


def _has_target(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def _around(span: tuple[int, int], before: str, after: str) -> Iterator[Span]:
    yield span[0], span[0], before
    yield span[1], span[1], after

"""Edits that run statements of a loop less often.

They use the counter of the loop if there is one, else a new counter.
"""

import ast
from collections.abc import Collection, Iterable, Sequence

from forebay.doctor.analyse.loop_code import counter_of, loaded_names
from forebay.doctor.analyse.script_code import ScriptCode, last_name, names_in, stored_names
from forebay.doctor.rules.called_code import called_functions
from forebay.doctor.rules.edits import Edit

__all__ = ["can_run_rarely", "can_skip", "every_nth_call", "every_nth_step", "every_nth_steps", "without_counter"]

# Methods that train, or hand a value on in every step.
_NEEDED_CALLS = frozenset(
    {"apply_gradients", "backward", "fit", "minimize", "put", "send", "step", "train_on_batch", "update", "zero_grad"}
)
_ADDING_CALLS = frozenset({"add", "append", "appendleft", "extend", "insert", "push"})


def without_counter(text: str, steps: int) -> str:
    """Return example code that runs `text` in every `steps`-th step of some loop."""
    return f"step = 0   # before the loop\nstep += 1   # in the loop\nif step % {steps} == 0:\n    {text}"


def every_nth_steps(code: ScriptCode, numbers: Iterable[int], steps: int, *, also_at_end: bool = False) -> list[Edit]:
    """Return the edits that run the statements of several lines only in every `steps`-th step.

    The list is empty if a statement is in no loop, or if the script may use its result. With `also_at_end`, the edits
    also run the statements after the outermost loop, and count the steps of all epochs. The counter of an inner loop
    starts again in each epoch, so a statement that saves the model could miss the end of the training. The list is then
    also empty for a statement in a `with`: after the loop, its file would be closed.
    """
    statements = {code.statement_at(number) for number in numbers}
    if not statements or not all(_can_skip(code, statement) for statement in statements):
        return []
    if also_at_end and any(_is_in_with(code, statement) for statement in filter(None, statements)):
        return []
    counters: dict[ast.stmt, list[str]] = {}  # the outermost loop -> its new counters
    last: dict[ast.stmt, list[str]] = {}  # the outermost loop -> the statements that follow it
    edits: list[Edit] = []
    for block in _blocks(code, sorted(filter(None, statements), key=lambda statement: statement.lineno)):
        loops = code.loops_around(block[0])
        restarts = also_at_end and len(loops) > 1
        counter = None if restarts or _is_conditional(code, block[0], loops[0]) else counter_of(code, loops[0])
        if also_at_end:
            last.setdefault(loops[-1], []).extend(code.text(statement) for statement in block)
        if counter is None:
            taken = counters.setdefault(loops[-1], [])
            taken.append(_new_counter(code, "step", [name for names in counters.values() for name in names]))
            edits.append(_run_every_nth(code, block, steps, taken[-1]))
            continue
        name, header = counter
        edits.append(_replace_block(block, f"if {name} % {steps} == 0:\n{_indented(code, block)}"))
        edits += [Edit.header(code, loops[0], header)] if header is not None else []
    before = [Edit.before(loop, *(f"{name} = 0" for name in names)) for loop, names in counters.items()]
    after = [Edit.after_loop(loop, *texts) for loop, texts in last.items()]
    return list(dict.fromkeys([*before, *edits, *after]))  # two statements of one loop need its new header once


def every_nth_step(code: ScriptCode, number: int, steps: int = 100) -> list[Edit]:
    """Return the edits that run a statement in every `steps`-th step, or none."""
    return every_nth_steps(code, [number], steps)


def every_nth_call(code: ScriptCode, number: int, calls: int) -> list[Edit]:
    """Return the edits that skip all but every `calls`-th execution of a statement.

    The list is empty unless the statement is a call in a loop, or an assignment that runs only in some steps and whose
    names the script never reads.
    """
    statement = code.statement_at(number)
    loops = code.loops_around(statement) if statement is not None else []
    if statement is None or not loops or not (can_skip(code, statement) or _is_unread(code, statement, loops[0])):
        return []
    name = _new_counter(code, "calls", ())
    return [Edit.before(loops[-1], f"{name} = 0"), _run_every_nth(code, [statement], calls, name)]


def _can_skip(code: ScriptCode, statement: ast.stmt | None) -> bool:
    """Whether a statement is in a loop, and no later statement needs its result."""
    return statement is not None and bool(code.loops_around(statement)) and can_skip(code, statement)


def _blocks(code: ScriptCode, statements: Sequence[ast.stmt]) -> list[list[ast.stmt]]:
    """Return groups of statements that directly follow each other on lines of their own."""
    blocks: list[list[ast.stmt]] = []
    for statement in statements:
        is_alone = code.replace_in_lines(statement, "") is None
        if blocks and is_alone and _next_statement(code, blocks[-1][-1]) is statement:
            blocks[-1].append(statement)
        else:
            blocks.append([statement])
    return blocks


def _next_statement(code: ScriptCode, statement: ast.stmt) -> ast.stmt | None:
    """Return the next statement of the same block; None if `statement` shares its lines."""
    for name in ("body", "orelse", "finalbody"):
        block: list[ast.stmt] = getattr(code.parents.get(statement), name, [])
        if statement in block[:-1] and code.replace_in_lines(statement, "") is None:
            return block[block.index(statement) + 1]
    return None


def _run_every_nth(code: ScriptCode, block: Sequence[ast.stmt], calls: int, name: str) -> Edit:
    """Return the edit that runs a block only in every `calls`-th execution, by a counter."""
    return _replace_block(block, f"{name} += 1\nif {name} % {calls} == 0:\n{_indented(code, block)}")


def _new_counter(code: ScriptCode, name: str, taken: Collection[str]) -> str:
    """Return a name that is not in use: `name` itself, or with a number."""
    names = [name, *(f"{name}_{number}" for number in range(2, len(taken) + 3))]
    return next((each for each in names if each not in taken and each not in code.all_names), code.new_name(names[-1]))


def _replace_block(block: Sequence[ast.stmt], text: str) -> Edit:
    """Return the edit that replaces consecutive statements."""
    if len(block) == 1:
        return Edit.instead(block[0], text)
    return Edit("instead", block[0].lineno, block[-1].end_lineno or block[-1].lineno, text)


def _indented(code: ScriptCode, block: Sequence[ast.stmt]) -> str:
    return "\n".join(f"    {line}" for statement in block for line in code.text(statement).split("\n"))


def can_run_rarely(statement: ast.stmt) -> bool:
    """Whether a statement is an expression whose result and effect no other statement needs in every step.

    The statement must not train, yield, await, or assign a name by `:=`.
    """
    if not isinstance(statement, ast.Expr):
        return False
    nodes = [*ast.walk(statement)]
    if any(isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.NamedExpr) for node in nodes):
        return False
    return not any(isinstance(node, ast.Call) and last_name(node) in _NEEDED_CALLS for node in nodes)


def can_skip(code: ScriptCode, statement: ast.stmt) -> bool:
    """Whether an expression of a loop can run rarely, and adds nothing to a container that the loop uses elsewhere."""
    if not can_run_rarely(statement) or not (loops := code.loops_around(statement)):
        return False
    added = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and last_name(node) in _ADDING_CALLS]
    containers = {code.text(call.func.value) for call in added if isinstance(call.func, ast.Attribute)}
    around = [loops[-1], *called_functions(code, names_in(loops[-1]))]
    nodes = (node for each in around for node in ast.walk(each) if isinstance(node, ast.Name | ast.Attribute))
    used = [node for node in nodes if code.statement_of(node) is not statement]
    return not containers & {code.text(node) for node in used}


def _is_unread(code: ScriptCode, statement: ast.stmt, loop: ast.stmt) -> bool:
    """Whether a statement is a conditional assignment of names that the script never reads."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return False
    return _is_conditional(code, statement, loop) and not stored_names(statement) & loaded_names(code.tree)


def _is_in_with(code: ScriptCode, statement: ast.stmt) -> bool:
    """Whether a `with` inside the outermost loop contains a statement."""
    parents = list(code.ancestors(statement))
    inside = parents[: parents.index(code.loops_around(statement)[-1])]
    return any(isinstance(parent, ast.With | ast.AsyncWith) for parent in inside)


def _is_conditional(code: ScriptCode, statement: ast.stmt, loop: ast.stmt) -> bool:
    """Whether an `if` inside the loop decides whether a statement runs."""
    for parent in code.ancestors(statement):
        if parent is loop:
            return False
        if isinstance(parent, ast.If):
            return True
    return False

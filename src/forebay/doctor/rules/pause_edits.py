"""Edits of statements that make steps long: remove them, or run them less often."""

import ast

from forebay.doctor.analyse.loop_code import loaded_names
from forebay.doctor.analyse.script_code import ScriptCode, last_name, stored_names
from forebay.doctor.rules.edits import Edit
from forebay.doctor.rules.input_edits import patch_statement, resolve
from forebay.doctor.rules.step_edits import every_nth_call

__all__ = ["remove_expression", "run_less_often"]


def remove_expression(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edit that removes a call whose result the script does not use.

    The list is empty if line `number` has another statement.
    """
    statement = code.statement_at(number)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return []
    has_name = any(isinstance(node, ast.NamedExpr) for node in ast.walk(statement))
    return [Edit.remove(code, statement)] if not has_name else []


def run_less_often(code: ScriptCode, number: int, period: int, times: int) -> list[Edit]:
    """Return the edits that run a line only once where it now runs `times` times.

    If the line runs in every `period`-th step because of a test such as `if step % 20 == 0`, change the number in the
    test. Otherwise, or if the test also decides when the script trains, let a new counter skip the line. The list is
    empty if the script may need the results of all executions.
    """
    statement = code.statement_at(number)
    if statement is None:
        return []
    tests = [node for node in (statement, *code.ancestors(statement)) if isinstance(node, ast.If)]
    for test in tests:
        remainders = [
            node for node in ast.walk(test.test) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)
        ]
        periods = [node.right for node in remainders if isinstance(resolve(code, node.right), ast.Constant)]
        value = resolve(code, periods[0]) if len(periods) == 1 else None
        if isinstance(value, ast.Constant) and value.value == period and not _trains(code, test):
            longer = str(period * times) if value is periods[0] else f"({times} * {code.text(periods[0])})"
            return patch_statement(code, test, code.replace(periods[0], longer))
    return every_nth_call(code, number, times)


def _trains(code: ScriptCode, test: ast.If) -> bool:
    """Whether the branches of a test train, or assign names that other code reads."""
    loops = code.loops_around(test)
    calls = {last_name(node) for node in ast.walk(test) if isinstance(node, ast.Call)}
    return bool(calls & _TRAINING_CALLS or stored_names(test) & loaded_names(*loops, without=test))


_TRAINING_CALLS = frozenset({"step", "zero_grad", "backward", "apply_gradients", "minimize"})

"""Edits of statements that make steps long: remove them, or run them less often."""

import ast

from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.rules.edits import Edit
from forebay.doctor.rules.input_edits import patch_statement
from forebay.doctor.rules.step_edits import every_nth_call

__all__ = ["remove_expression", "run_less_often"]


def remove_expression(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edit that removes a call whose result the script does not use; empty if the line is another one."""
    statement = code.statement_at(number)
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return [Edit.remove(code, statement)] if statement is not None and is_call else []


def run_less_often(code: ScriptCode, number: int, period: int, times: int) -> list[Edit]:
    """Return the edits that run a line only once of `times`; empty if none fits. It now runs every `period`-th step.

    If the line belongs to a test such as `if step % 20 == 0`, its number changes. Otherwise a counter skips the line.
    """
    statement = code.statement_at(number)
    if statement is None:
        return []
    tests = [node for node in (statement, *code.ancestors(statement)) if isinstance(node, ast.If)]
    for test in tests:
        periods = [
            node.right
            for node in ast.walk(test.test)
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.right, ast.Constant)
        ]
        if len(periods) == 1 and periods[0].value == period:
            return patch_statement(code, test, code.replace(periods[0], str(period * times)))
    return every_nth_call(code, number, times)

"""Edits of statements that make steps long: remove them, or run them less often."""

import ast

from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.rules.edits import Edit
from forebay.doctor.rules.input_edits import patch_statement

__all__ = ["remove_expression", "run_less_often"]


def remove_expression(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edit that removes a call whose result the script does not use; empty if the line is another one."""
    statement = code.statement_at(number)
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return [Edit.remove(code, statement)] if statement is not None and is_call else []


def run_less_often(code: ScriptCode, number: int, period: int, factor: int) -> list[Edit]:
    """Return the edit of a test such as `if step % 20 == 0` around a line, which then holds less often by a factor.

    `period` is the number in the test. Empty if there is no such test.
    """
    statement = code.statement_at(number)
    around = (statement, *code.ancestors(statement)) if statement is not None else ()
    for test in (node for node in around if isinstance(node, ast.If)):
        periods = [
            node.right
            for node in ast.walk(test.test)
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.right, ast.Constant)
        ]
        if len(periods) == 1 and periods[0].value == period:
            return patch_statement(code, test, code.replace(periods[0], str(factor * period)))
    return []

"""Edits of statements that make steps long: remove them, run them less often, or save in a thread."""

import ast

from forebay.doctor.analyse.loop_code import step_loop
from forebay.doctor.analyse.script_code import ScriptCode, last_name, root_name
from forebay.doctor.rules.compile_edits import executed_lines
from forebay.doctor.rules.edits import Edit
from forebay.doctor.rules.input_edits import patch_statement
from forebay.doctor.rules.loop_edits import every_nth_step

__all__ = ["remove_expression", "run_less_often", "save_in_background"]


def remove_expression(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edit that removes a call whose result the script does not use; empty if the line is another one."""
    statement = code.statement_at(number)
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return [Edit.remove(code, statement)] if statement is not None and is_call else []


def run_less_often(code: ScriptCode, number: int, period: int, every: int) -> list[Edit]:
    """Return the edits that run a line in every `every`-th step instead of every `period`-th one.

    If the line belongs to a test such as `if step % 20 == 0`, its number changes. Else the line gets such a test.
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
            return patch_statement(code, test, code.replace(periods[0], str(every)))
    return [] if tests else every_nth_step(code, number, every)


def save_in_background(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that let a thread write what `torch.save` saves; empty if they do not fit.

    The line saves, or calls a function of the script that does. The thread gets a copy, because training goes on.
    """
    statement = code.statement_at(number)
    lines = executed_lines(code, [statement]) if statement is not None else set()
    calls = [call for call in code.calls("save") if call.lineno in lines and root_name(call.func) == "torch"]
    if statement is None or len(calls) != 1 or len(calls[0].args) != 2 or calls[0].keywords:
        return []
    save, loop = code.statement_of(calls[0]), step_loop(code, statement)
    if loop is None or not isinstance(save, ast.Expr) or last_name(save.value) != "save":
        return []
    outer = code.loops_around(loop)[-1]
    if code.function_around(outer) not in (None, code.function_around(save)):
        return []  # the function that saves would not see the thread
    saver, (state, path) = code.new_name("saver"), map(code.text, calls[0].args)
    imports = [] if code.imports("copy") else ["import copy"]
    imports += ["from concurrent.futures import ThreadPoolExecutor"]
    return [
        Edit.before(outer, *imports, f"{saver} = ThreadPoolExecutor(1)"),
        Edit.instead(save, f"{saver}.submit({code.text(calls[0].func)}, copy.deepcopy({state}), {path})"),
        Edit.after_loop(outer, f"{saver}.shutdown()   # waits for the last file"),
    ]

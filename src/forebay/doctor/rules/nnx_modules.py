"""The rule for functions of `nnx.jit` that take modules apart in every step.

Flax NNX passes the arrays of modules to a compiled function, and then puts the results back into the modules. For this,
Flax walks over all parts of the modules in Python, before and after each call.
"""

import ast
from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.framework import is_module_traversal
from forebay.doctor.analyse.host_lines import HostLine, host_lines
from forebay.doctor.analyse.script_code import ScriptCode, last_name, root_name, script_code, stored_names
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.predict.cure_changes import remove_work
from forebay.doctor.rules.edits import Edit
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.input_edits import patch_statement

__all__ = ["cache_modules", "examine"]

MIN_REPORTED_SHARE = 0.1  # share of a step, as in the rule `eager`
# Share of the time outside of the compiled function that `nnx.cached_partial` removes, at best and at worst. Measured
# with Flax 0.12.8 (2026-11-17): 0.66 to 0.79 on a CPU, with 2 to 24 layers, with and without donation; 0.91 on a
# machine with an H200, with one script.
REMOVED_SHARES = 0.8, 0.65
REMOVED_SHARES_WITH_GPU = 0.9, 0.83
CACHE = "cached_partial"  # the function of Flax that keeps modules taken apart

_CODE = (
    "cached_step = nnx.cached_partial(train_step, model, optimizer)   # before the loop\n"
    "loss = cached_step(batch)                                        # in the loop"
)


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield one finding per line that calls a function of `nnx.jit`."""
    for host_line in host_lines(view):
        seconds = _traversal_seconds(host_line)
        if seconds >= MIN_REPORTED_SHARE * view.step_seconds > 0 and not _is_cached(view, host_line):
            yield _finding(view, host_line, seconds)


def _traversal_seconds(host_line: HostLine) -> float:
    """Return the seconds per step in which Flax takes modules apart on a line.

    While Python enters or leaves the wrapper of Flax, samples have no name of a function. They count too, if other
    samples of the line show that Flax takes modules apart.
    """
    functions = dict(host_line.functions)
    named = sum(seconds for function, seconds in functions.items() if is_module_traversal(function))
    return named + functions.get("", 0.0) if named else 0.0


def _is_cached(view: CaptureView, host_line: HostLine) -> bool:
    """Whether the script already calls `nnx.cached_partial`."""
    code = script_code(view, host_line.line)
    return code is not None and bool(code.calls(CACHE))


def _finding(view: CaptureView, host_line: HostLine, seconds: float) -> Finding:
    best, worst = (seconds * share for share in (REMOVED_SHARES_WITH_GPU if view.has_gpu else REMOVED_SHARES))
    function = max((each for each in host_line.functions if is_module_traversal(each[0])), key=lambda each: each[1])[0]
    return Finding(
        rule="nnx_modules",
        title=f"nnx.jit takes modules apart in Python for {format_percent(seconds / view.step_seconds)} of the time",
        line=host_line.line,
        seconds=seconds,
        cures=(
            Cure(
                "take the modules apart once, before the loop",
                fit_line(view, host_line.line, cache_modules) or _CODE,
                basis="the cure saves most of the time of Flax outside of the compiled function; the loop must not add "
                "or remove parts of the modules",
                changes=remove_work(view, best, least=worst),
            ),
        ),
        evidence=(f"Samples of this line: {function} takes {format_seconds(seconds)} per step.",),
    )


def cache_modules(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that pass a call's modules to `nnx.cached_partial` before the loop.

    The list is empty if the line has no call of a jitted function whose first arguments are constant in the loop.
    """
    statement = code.statement_at(number)
    loops = code.loops_around(statement) if statement is not None else []
    if statement is None or not loops:
        return []
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
        modules = _modules_of(call, stored_names(*loops)) if _is_jitted(code, call) else []
        if modules:
            return _edits(code, statement, call, modules, loops[-1])
    return []


def _is_jitted(code: ScriptCode, call: ast.Call) -> bool:
    """Whether a call runs a function of the script that `nnx.jit` compiles."""
    function = code.function(last_name(call)) if isinstance(call.func, ast.Name) else None
    made = [*function.decorator_list] if function is not None else [code.value_of(last_name(call))]
    return isinstance(call.func, ast.Name) and any(_is_nnx_jit(node) for node in made)


def _is_nnx_jit(node: ast.expr | None) -> bool:
    arguments = node.args if isinstance(node, ast.Call) else []  # such as @partial(nnx.jit, donate_argnums=0)
    return any(root_name(each) == "nnx" and last_name(each) == "jit" for each in (node, *arguments))


def _modules_of(call: ast.Call, changed: set[str]) -> list[ast.Name]:
    """Return the leading arguments of a call that are names outside of `changed`."""
    modules: list[ast.Name] = []
    for argument in call.args:
        if not isinstance(argument, ast.Name) or argument.id in changed:
            break
        modules.append(argument)
    return modules


def _edits(
    code: ScriptCode, statement: ast.stmt, call: ast.Call, modules: list[ast.Name], outer: ast.stmt
) -> list[Edit]:
    name = code.new_name(f"cached_{last_name(call)}")
    nnx = code.imported_name("flax", "nnx") or "nnx"
    cached = ", ".join([last_name(call), *(module.id for module in modules)])
    others = [code.text(argument) for argument in call.args[len(modules) :]]
    keywords = [(f"{each.arg}=" if each.arg else "**", each.value) for each in call.keywords]
    others += [start + code.text(value) for start, value in keywords]
    patch = code.replace(call, f"{name}({', '.join(others)})")
    return [Edit.before(outer, f"{name} = {nnx}.{CACHE}({cached})"), *patch_statement(code, statement, patch)]

"""The rule for lines on which the host itself works for much of a step.

For example, such a line saves a file, prints, sleeps, or computes with NumPy.
"""

import re
from collections.abc import Iterator, Sequence

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.framework import is_framework_function
from forebay.doctor.analyse.host_lines import HostLine, host_lines
from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.model.events import PYTHON_CODE, EventKind, Line
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.predict.cure_changes import remove_work
from forebay.doctor.rules import allocator, made_in_loop
from forebay.doctor.rules.avoidable_calls import AVOIDABLE_CALLS, EMPTY_CACHE, AvoidableCall
from forebay.doctor.rules.drift import growing_lines
from forebay.doctor.rules.edits import Edit
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_line, fit_removal
from forebay.doctor.rules.pauses import reported_lines
from forebay.doctor.rules.step_edits import every_nth_steps
from forebay.doctor.rules.wording import location, source_text

__all__ = ["examine"]

MIN_AVOIDABLE_SHARE = 0.05  # share of a step that calls of one kind take, if most steps do not need them
MIN_LINE_SHARE = 0.01  # share of a step that such calls take on one line
MAX_CURED_LINES = 6  # lines that the code of one cure changes; the gain of the cure counts only these lines
MIN_WORK_SHARE = 0.25  # share of a step that other work takes; a high limit, because the script may need this work


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield one finding per kind of avoidable call, and one per other slow line.

    Omit the lines that the rules `pauses` and `drift` report. On a line with recorded calls, report only avoidable
    calls. If the rule `made_in_loop` has a finding, report only avoidable calls on every line.
    """
    explained = reported_lines(view) | growing_lines(view)
    lines = [each for each in host_lines(view) if each.line not in explained]
    yield from _avoidable_findings(view, lines)
    if not lines or any(True for _ in made_in_loop.examine(view)):
        return
    recorded = {site.line for site in view.sites if site.in_loop and site.kind != EventKind.STEP}
    for host_line in lines:
        is_other_work = _find_avoidable(host_line) is None and host_line.line not in recorded
        if is_other_work and _is_host_work(host_line) and host_line.seconds >= MIN_WORK_SHARE * view.step_seconds:
            yield _work_finding(view, host_line)


def _avoidable_findings(view: CaptureView, lines: Sequence[HostLine]) -> Iterator[Finding]:
    """Yield one finding for each kind of avoidable call, with all lines of this kind."""
    emptying = _lines_that_empty_cache(view) if lines else set()
    for avoidable in AVOIDABLE_CALLS:
        found = [each for each in lines if _find_avoidable(each) is avoidable]
        found = [each for each in found if each.line not in emptying or not _only_empties_cache(each, avoidable)]
        found = [each for each in found if _seconds_of(each, avoidable) >= MIN_LINE_SHARE * view.step_seconds]
        if found and sum(_seconds_of(each, avoidable) for each in found) >= MIN_AVOIDABLE_SHARE * view.step_seconds:
            yield _avoidable_finding(view, found, avoidable)


def _lines_that_empty_cache(view: CaptureView) -> set[Line | None]:
    """Return the lines whose calls of `empty_cache` the rule `allocator` reports."""
    return {finding.line for finding in allocator.examine(view)}


def _only_empties_cache(host_line: HostLine, avoidable: AvoidableCall) -> bool:
    """Whether the avoidable calls of a line only empty the cache of device memory."""
    calls = [function for function, _ in host_line.functions if avoidable.includes(function)]
    return all(function in EMPTY_CACHE for function in calls)


def _find_avoidable(host_line: HostLine) -> AvoidableCall | None:
    """Return the kind of the longest avoidable call of a line; None without one."""
    for function, _ in host_line.functions:
        for avoidable in AVOIDABLE_CALLS:
            if avoidable.includes(function):
                return avoidable
    return None


def _seconds_of(host_line: HostLine, avoidable: AvoidableCall) -> float:
    return sum(seconds for function, seconds in host_line.functions if avoidable.includes(function))


def _is_host_work(host_line: HostLine) -> bool:
    """Whether the longest function of a line is known, and belongs to no framework.

    Functions of frameworks compute or launch kernels, and other rules explain their calls.
    """
    return bool(host_line.function) and not is_framework_function(host_line.function)


def _avoidable_finding(view: CaptureView, lines: Sequence[HostLine], avoidable: AvoidableCall) -> Finding:
    """Build the finding for all lines with one kind of avoidable call.

    The finding is at the line with the most time.
    """
    seconds = sum(_seconds_of(each, avoidable) for each in lines)
    lines = sorted(lines, key=lambda each: -_seconds_of(each, avoidable))
    code, cured = _code_for_lines(view, lines, avoidable)
    cure = Cure(
        avoidable.cure,
        code,
        basis="the cure saves the sampled time of the calls, because few or no steps make them",
        changes=remove_work(view, sum(_seconds_of(each, avoidable) for each in cured)),
    )
    share = format_percent(seconds / view.step_seconds)
    title = f"The loop {avoidable.verb} for {share} of the time"
    others = [
        f"{location(view, each.line, '?')} ({format_seconds(_seconds_of(each, avoidable))})" for each in lines[1:6]
    ]
    left = [location(view, each.line, "?") for each in lines[len(cured) :]][:5]
    evidence = (
        *_evidence(lines[0]),
        *([f"Other lines: {', '.join(others)}."] if others else []),
        *([f"The code and the gain do not include {', '.join(left)}. Change these lines too."] if left else []),
    )
    return Finding("host", title, lines[0].line, seconds, (cure,), evidence)


def _code_for_lines(
    view: CaptureView, lines: Sequence[HostLine], avoidable: AvoidableCall
) -> tuple[str, Sequence[HostLine]]:
    """Return the code of a cure, and the lines that it cures.

    These are the lines with the most time; or all lines, if the code changes the call of a function that contains all
    of them.
    """
    cured = lines[:MAX_CURED_LINES]
    if fitted := _fitted_code(view, [each.line for each in cured], avoidable):
        return fitted, cured
    if function := _called_function(view, lines, avoidable):
        return avoidable.code.format(f"{function}(...)   # the function that {avoidable.verb}"), lines
    texts = dict.fromkeys(source_text(each.line, "...") for each in cured)
    if _interval(avoidable):
        return avoidable.code.format("\n    ".join(texts)), cured
    return "\n".join(avoidable.code.format(text) for text in texts), cured


def _called_function(view: CaptureView, lines: Sequence[HostLine], avoidable: AvoidableCall) -> str:
    """Return the function with all these lines, if the loop may call it less often.

    Return an empty string for a single line, for lines of several functions or of the loop itself, and for calls that
    the cure removes.
    """
    functions = {each.line.function for each in lines}
    step_line = view.line(view.steps.anchor[2]) if view.steps is not None else None
    name = lines[0].line.function.rpartition(".")[2]
    is_called = step_line is not None and step_line.function not in functions and name.isidentifier()
    return name if len(lines) > 1 and len(functions) == 1 and is_called and _interval(avoidable) else ""


def _interval(avoidable: AvoidableCall) -> int:
    """Return n if the cure keeps calls in every n-th step; 0 without such calls."""
    every = re.search(r"step % (\d+)", avoidable.code)
    return int(every[1]) if every is not None else 0


def _fitted_code(view: CaptureView, lines: Sequence[Line], avoidable: AvoidableCall) -> str:
    """Return edits, as text, that run these lines in fewer steps or remove them."""
    steps, numbers = _interval(avoidable), [line.number for line in lines]
    if steps:
        is_one_file = len({line.file for line in lines}) == 1
        is_needed = avoidable.is_needed_at_end

        def make_edits(code: ScriptCode, _: int) -> list[Edit]:
            return every_nth_steps(code, numbers, steps, also_at_end=is_needed)

        return fit_line(view, lines[0], make_edits) if is_one_file else ""
    names = [name.rpartition(".")[2] for name in avoidable.names]
    removals = [fit_removal(view, line, *names) for line in lines]
    return "\n".join(removals) if all(removals) else ""


def _work_finding(view: CaptureView, host_line: HostLine) -> Finding:
    seconds, share = host_line.seconds, format_percent(host_line.seconds / view.step_seconds)
    what = "Python code" if host_line.function == PYTHON_CODE else host_line.function
    cure = Cure(
        "do this before the loop, or prefetch it in worker processes",
        'feed = fb.from_source(rows).map(prepare, where="process").batch(...).feed(...)   # prepare(row) does the work',
        basis="the cure saves the sampled time of the line, unless a step needs the result of the previous step",
        changes=remove_work(view, seconds, least=0.0),
    )
    title = f"One line of the loop runs {what} for {share} of the time"
    return Finding("host", title, host_line.line, seconds, (cure,), _evidence(host_line))


def _evidence(host_line: HostLine) -> tuple[str, ...]:
    """Return a sentence about the longest functions of a line; empty without known functions."""
    total = sum(seconds for _, seconds in host_line.functions)
    named = [(function, seconds / total) for function, seconds in host_line.functions if function and total][:3]
    shares = ", ".join(f"{function} {format_percent(share)}" for function, share in named)
    return (f"Samples of this line: {shares}.",) if shares else ()

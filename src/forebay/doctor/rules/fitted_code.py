"""Code of cures, as edits of the script that was profiled.

A function `fit_...` returns edits as text. The text is empty if the code at the given line has a form for which there
is no edit, or if the capture has no excerpt of the script.
"""

import ast
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.framework import array_framework, dtype_bits
from forebay.doctor.analyse.loop_code import depends_on_lines
from forebay.doctor.analyse.script_code import ScriptCode, last_name, names_in, script_code
from forebay.doctor.model.events import EventKind, Line
from forebay.doctor.rules import (
    batch_edits,
    build_edits,
    compile_edits,
    fit_edits,
    input_edits,
    jit_edits,
    loop_edits,
    pipeline_edits,
    read_edits,
    tape_edits,
)
from forebay.doctor.rules.edits import Edit, format_edits

__all__ = [
    "CompiledStep",
    "fit_array_feed",
    "fit_batch_feed",
    "fit_build_once",
    "fit_compile",
    "fit_compiled_step",
    "fit_conversion",
    "fit_feed",
    "fit_keep_on_device",
    "fit_keras_compile",
    "fit_line",
    "fit_loader",
    "fit_more_steps",
    "fit_read",
    "fit_removal",
    "fit_workers",
    "has_excerpt",
    "list_dtype",
    "keras_setting",
    "uses_read_values",
]

MakeEdits = Callable[[ScriptCode, int], list[Edit]]
_log = logging.getLogger(__name__)


def fit_line(view: CaptureView, line: Line | None, make_edits: MakeEdits) -> str:
    """Return the edits that `make_edits` makes for a line, as text."""
    code = script_code(view, line)
    if code is None or line is None:
        return ""
    try:
        return format_edits(edit.keep_neighbours(code) for edit in make_edits(code, line.number))
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        # An unusual script must not end the diagnosis. Without an edit, the rule shows example code.
        _log.debug("no edit fits line %d: %r", line.number, error)
        return ""


def fit_feed(view: CaptureView, framework: str, site: CallSite | None, line: Line | None = None) -> str:
    """Return code for a feed that replaces the input of the script.

    The feed saves the time of the call site `site`, or of `line` if the finding has no call site.
    """
    arrays = array_framework(view, site.api) if site is not None and framework == "keras" else framework
    for place in [line, *_input_lines(view, site)]:
        code = fit_line(view, place, lambda code, number: _feed_edits(view, code, number, framework, arrays, site))
        if code:
            return code
    return ""


def _feed_edits(
    view: CaptureView, code: ScriptCode, number: int, framework: str, arrays: str, site: CallSite | None
) -> list[Edit]:
    statement = code.statement_at(number)
    if statement is None:
        return []
    rows = next((int(rows) for other in view.sites_of(EventKind.INPUT) for rows in other.values("batch_rows")), 32)
    edits = fit_edits.feed_of_fit(code, number, rows) if framework == "keras" and _may_read_arrays(view) else []
    if not edits and "tf.data" in _loaders(view):
        edits = pipeline_edits.feed_of_slices(code, number, framework)
    if not edits and not _takes_no_batches(statement):
        edits = input_edits.feed_of_batches(code, number, arrays if isinstance(statement, ast.For) else framework)
    edits = edits or batch_edits.feed_of_loop(code, number, arrays, list_dtype(site))
    loop = _loop_of_batches(code, statement) if not edits else None
    return input_edits.feed_of_batches(code, loop.lineno, arrays) if loop is not None else edits


def _loop_of_batches(code: ScriptCode, statement: ast.stmt) -> ast.For | None:
    """Return the loop whose batches a statement passes to its call; None without one."""
    loops, call = code.loops_around(statement), getattr(statement, "value", None)
    if not loops or not isinstance(loops[0], ast.For) or _takes_no_batches(loops[0]) or not isinstance(call, ast.Call):
        return None
    target, iterable = loops[0].target, loops[0].iter
    if isinstance(iterable, ast.Call) and last_name(iterable) == "enumerate" and isinstance(target, ast.Tuple):
        target = target.elts[-1]
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    passed = {argument.id for argument in arguments if isinstance(argument, ast.Name)}
    return loops[0] if passed & names_in(target) else None


def _may_read_arrays(view: CaptureView) -> bool:
    return not _loaders(view) or "arrays" in _loaders(view)


def _loaders(view: CaptureView) -> set[object]:
    return {loader for site in view.sites_of(EventKind.INPUT) for loader in site.values("loader")}


def _takes_no_batches(statement: ast.stmt) -> bool:
    """Whether a statement certainly receives no batches, such as a loop over `range`."""
    if isinstance(statement, ast.For):
        return not isinstance(statement.iter, ast.Name | ast.Attribute | ast.Call) or _is_range_or_zip(statement.iter)
    return not any(isinstance(node, ast.Call) for node in ast.walk(statement))


def _is_range_or_zip(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("range", "zip")


def _input_lines(view: CaptureView, site: CallSite | None) -> Iterator[Line | None]:
    """Yield the lines at which the script may receive its batches, the most likely first."""
    inputs = [other.line for other in view.sites_of(EventKind.INPUT) if other.in_loop]
    if site is not None and site.kind is EventKind.UPLOAD:
        inputs = [line for line in inputs if line is not None and site.line is not None and line.file == site.line.file]
        yield from inputs
        yield site.line
        return
    yield from ([site.line] if site is not None else [])
    yield from inputs
    yield from (other.line for other in view.sites_of(EventKind.STEP))


def list_dtype(site: CallSite | None) -> str | None:
    """Return the dtype of tensors that a call site makes from lists; else None."""
    kinds = {str(kind) for kind in site.values("from_dtype")} if site is not None else set()
    if not kinds & {"list", "tuple", "float", "int", "bool", "dict", "object"} or site is None:
        return None
    bits = dtype_bits(next((str(dtype) for dtype in site.values("dtype") if dtype), ""))
    return f"{bits[0]}{bits[1]}" if bits else "float32"


def fit_array_feed(view: CaptureView, framework: str, site: CallSite) -> str:
    """Return code for a feed of the arrays or the dataset of a loader."""
    is_stream = any(detail.get("stream") for detail in view.loader_details(site))

    def make_edits(code: ScriptCode, number: int) -> list[Edit]:
        if is_stream:
            return input_edits.feed_of_batches(code, number, framework)
        if site.api == "DataLoader":
            return input_edits.feed_of_dataset(code, number, framework)
        return pipeline_edits.feed_of_slices(code, number, framework)

    return fit_line(view, site.line, make_edits)


def fit_feed_of_all_rows(view: CaptureView, framework: str, site: CallSite, comment: str) -> str:
    """Return code that makes all rows of a dataset once and feeds them. The code begins with `comment`."""
    return fit_line(
        view,
        site.line,
        lambda code, number: input_edits.feed_of_dataset(code, number, framework, stored_rows=comment),
    )


def fit_batch_feed(view: CaptureView, framework: str, site: CallSite) -> str:
    """Return code for a feed of the ready-made batches of a loader."""
    return fit_line(view, site.line, lambda code, number: input_edits.feed_of_batches(code, number, framework))


def fit_loader(view: CaptureView, line: Line | None, **keywords: str) -> str:
    """Return code that sets these keyword arguments of the DataLoader at a line."""
    return fit_line(view, line, lambda code, number: input_edits.change_loader(code, number, **keywords))


def fit_workers(view: CaptureView, lines: Sequence[Line | None], settings: Mapping[str, str], *held: str) -> str:
    """Return code that sets arguments of a DataLoader, at the first line that allows this.

    `settings` are the arguments. `held` are the generators of random numbers that the dataset holds, such as
    "transform.rng: Generator". The code gives each worker process its own generators.
    """

    def make_edits(code: ScriptCode, number: int) -> list[Edit]:
        return input_edits.change_loader(code, number, held, **settings)

    return next(filter(None, (fit_line(view, line, make_edits) for line in lines)), "")


def fit_removal(view: CaptureView, line: Line | None, *names: str) -> str:
    """Return code that removes a call of one of these functions from the loop."""
    return fit_line(view, line, lambda code, number: loop_edits.remove_call(code, number, *names))


def has_excerpt(view: CaptureView, line: Line | None) -> bool:
    """Whether the excerpt of the script in the capture contains the statement at a line."""
    code = script_code(view, line)
    return code is not None and line is not None and code.statement_at(line.number) is not None


def uses_read_values(view: CaptureView, site: CallSite) -> bool:
    """Whether the excerpt shows that the loop computes converted data from values it reads back."""
    code = script_code(view, site.line)
    statement = code.statement_at(site.line.number) if code is not None and site.line is not None else None
    if code is None or statement is None or site.line is None:
        return False
    lines = {view.line(event.line) for event in view.events_of(EventKind.DOWNLOAD)}
    numbers = {line.number for line in lines if line is not None and line.file == site.line.file}
    return depends_on_lines(code, statement, numbers)


def fit_keep_on_device(view: CaptureView, site: CallSite) -> str:
    """Return code that uploads whole arrays before the loop."""
    framework = array_framework(view, site.api)
    return fit_line(view, site.line, lambda code, number: loop_edits.keep_arrays_on_device(code, number, framework))


def fit_conversion(view: CaptureView, site: CallSite, *, in_loop: bool = False) -> str:
    """Return code that converts constant data before the loop, or once inside of it."""
    framework = array_framework(view, site.api)
    make = loop_edits.upload_once_in_loop if in_loop else loop_edits.convert_before_loop
    return fit_line(view, site.line, lambda code, number: make(code, number, framework))


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """Code that compiles the step of a script, or a part of it."""

    code: str = ""  # empty if there is no edit
    file: str = ""
    numbers: frozenset[int] = frozenset()  # lines of `file` that run inside of compiled functions; empty if unknown

    def contains(self, line: Line | None) -> bool:
        """Whether the code may compile a line.

        A compiled function may call functions of other files, so all lines of other files count.
        """
        return not self.numbers or line is None or line.file != self.file or line.number in self.numbers


def fit_compile(view: CaptureView, line: Line | None, framework: str) -> str:
    """Return code that compiles the step that executes a line."""
    return _fit_decorator(view, line, framework).code


def fit_compiled_step(
    view: CaptureView, lines: Sequence[Line | None], framework: str, share: Callable[[CompiledStep], float]
) -> CompiledStep:
    """Return the code that compiles the largest share of the operations on these lines.

    `share` computes this share. Of codes with equal shares, return the first. For JAX, code that moves statements of
    the loop into a jitted function comes first. For TensorFlow, code that moves them into a `tf.function` comes last.
    """
    jitted = (_fit_jit(view, lines) for _ in range(framework == "jax"))
    decorated = (_fit_decorator(view, line, framework) for line in lines)
    taped = (_fit_compiled(view, line, tape_edits.compile_tape) for line in lines if framework == "tensorflow")
    fitted = [step for step in (*jitted, *decorated, *taped) if step.code]
    return max(fitted, key=share, default=CompiledStep())


def _fit_decorator(view: CaptureView, line: Line | None, framework: str) -> CompiledStep:
    anchor = view.line(view.steps.anchor[2]) if view.steps else None
    anchor_number = anchor.number if anchor is not None and line is not None and anchor.file == line.file else None
    if framework == "torch":
        return CompiledStep(fit_line(view, line, compile_edits.compile_torch_model))
    return _fit_compiled(
        view, line, lambda code, number: compile_edits.compile_function(code, number, framework, anchor_number)
    )


def _fit_jit(view: CaptureView, lines: Sequence[Line | None]) -> CompiledStep:
    """Return code that moves operations on these lines of the loop into a jitted function."""
    calls = [site.line for site in view.sites_of(EventKind.RUN, EventKind.TRANSFORM) if site.in_loop]
    anchor = view.line(view.steps.anchor[2]) if view.steps else None
    places = [line for line in dict.fromkeys((anchor, *calls, *lines)) if line is not None]
    for place in places:
        numbers = {line.number for line in (*lines, *calls) if line is not None and line.file == place.file}
        if (fitted := _fit_compiled(view, place, partial(_jit_edits, lines=numbers))).code:
            return fitted
    return CompiledStep()


def _fit_compiled(view: CaptureView, line: Line | None, make_edits: MakeEdits) -> CompiledStep:
    numbers: set[int] = set()

    def make(code: ScriptCode, number: int) -> list[Edit]:
        edits = make_edits(code, number)
        numbers.update(compile_edits.compiled_lines(code, edits))
        return edits

    text = fit_line(view, line, make)
    return CompiledStep(text, line.file, frozenset(numbers)) if text and line is not None else CompiledStep()


def _jit_edits(code: ScriptCode, number: int, lines: Collection[int]) -> list[Edit]:
    statement = code.statement_at(number)
    loops = code.loops_around(statement) if statement is not None else []
    return jit_edits.jit_statements(code, loops[0], lines) if loops else []


def fit_keras_compile(view: CaptureView, **keywords: str) -> str:
    """Return code that sets these keyword arguments of `model.compile`."""
    lines = [view.line(event.line) for event in view.events_of(EventKind.BUILD) if event.api == "Model.compile"]
    lines += [site.line for site in view.sites_of(EventKind.STEP, EventKind.OPS)]
    for line in dict.fromkeys(lines):
        code = fit_line(view, line, lambda code, number: compile_edits.compile_keras(code, number, **keywords))
        if code:
            return code
    return ""


def fit_more_steps(view: CaptureView) -> str:
    """Return code that lets Keras run more steps per call from Python."""
    steps = keras_setting(view, "steps_per_execution")
    more = 50 if not isinstance(steps, int) or steps < 50 else 10 * steps
    code = fit_keras_compile(view, steps_per_execution=str(more)) or f"model.compile(..., steps_per_execution={more})"
    return f"{code}   # {more} steps per call: callbacks and logs run once per call"


def fit_build_once(view: CaptureView, line: Line | None) -> str:
    return fit_line(view, line, build_edits.build_once)


def keras_setting(view: CaptureView, name: str) -> object:
    """Return an argument of the last `model.compile`; None if the capture lacks it."""
    events = [event for event in view.events_of(EventKind.BUILD) if event.api == "Model.compile"]
    return (events[-1].detail or {}).get(name) if events else None


def fit_read(view: CaptureView, site: CallSite, *, later: bool) -> str:
    """Return code that reads values in every hundredth step, or once after the loop.

    With `later`, the code receives the values of all steps instead, without a wait.
    """
    framework = array_framework(view, site.api)
    if later:
        return fit_line(view, site.line, read_edits.receive_later)
    return fit_line(view, site.line, lambda code, number: read_edits.read_few_times(code, number, framework))

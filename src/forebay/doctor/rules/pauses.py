"""The rule for rare long steps, such as steps that save a checkpoint.

The step time is a median, so it does not contain such steps. The cost of a finding is the share of the run that the
additional time of these steps takes, times the step time. So the predicted speedup of a step is also the speedup of the
whole run.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.pauses import Pause, PauseLine, find_pauses
from forebay.doctor.model.events import EventKind, Line
from forebay.doctor.model.formatting import format_count, format_ordinal, format_seconds
from forebay.doctor.predict.cure_changes import shorten_run
from forebay.doctor.rules.avoidable_calls import AVOIDABLE_CALLS, DRAWING, PRINTING, SAVING, AvoidableCall
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.input_pauses import INPUT, RESTART, SLOW_BATCHES, input_cures, input_evidence, input_kind
from forebay.doctor.rules.pause_edits import run_less_often
from forebay.doctor.rules.save_edits import save_in_thread
from forebay.doctor.rules.step_edits import without_counter
from forebay.doctor.rules.wording import location, source_text

__all__ = ["examine", "reported_lines"]

MIN_AVOIDABLE_SHARE = 0.05  # share of the run that a pause takes, if most steps do not need its calls
MIN_WORK_SHARE = 0.1  # share of the run that any other pause takes, because the script may need its work
MIN_MATCH = 0.5  # share of the time of a pause's longest line that functions of one kind must take
LESS_OFTEN = 10  # with the cure, only one of this many long steps remains long
MIN_GROWTH = 1.5  # median of the last third of the long steps, divided by that of the first; the evidence mentions more
MAX_LINES = 3  # lines that the evidence names

_LOGGING = AvoidableCall(
    "logs",
    (
        "torch.utils.tensorboard.",
        "tensorboard.",
        "tensorboardX.",
        "wandb.",
        "mlflow.",
        "keras.src.callbacks.tensorboard.",
    ),
    "log less often",
    without_counter("{}", 100),
)
_EVALUATING = AvoidableCall(
    "evaluates",
    (),
    "evaluate less often, with the compiled forward function and without gradients",
    "{}",
)
_KINDS = (*AVOIDABLE_CALLS, _LOGGING, INPUT)
# `AvoidableCall.verb` -> title of the cure. The titles of `AvoidableCall` name a number of steps, such as "save only
# every 1000th step". They do not fit here, because the script may already save less often.
_RARER_TITLES = {SAVING.verb: "save less often", PRINTING.verb: "print less often", DRAWING.verb: "draw less often"}
# A call of a Keras model that saves it; the group is the model.
_KERAS_SAVE = re.compile(r"([\w.]+)\.(?:save|save_weights|fit)\(")
_EVALUATION_NAME = re.compile(r"(?:^|[^a-z])(?:eval|evaluate|evaluation|valid|validate|validation|test)(?:[^a-z]|$)")


@dataclass(frozen=True, slots=True)
class _Reported:
    """A pause that takes enough time of the run for a finding."""

    pause: Pause
    kind: AvoidableCall | None  # what the loop does in these steps; None if unknown
    share: float  # share of the run that the additional time of the long steps takes
    lines: tuple[Line, ...]  # lines of the loop, most time first
    inner_lines: tuple[Line, ...]  # for each of `lines`: the innermost line, itself or called, with most of its time


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield one finding for each pause that takes enough time of the run."""
    for reported in _reported_pauses(view):
        yield _finding(view, reported)


def reported_lines(view: CaptureView) -> set[Line]:
    """Return the lines whose time this rule reports."""
    return {line for reported in _reported_pauses(view) for line in (*reported.lines, *reported.inner_lines)}


def _reported_pauses(view: CaptureView) -> Iterator[_Reported]:
    history = view.capture.history
    if history is None or not view.step_seconds or not history.seconds:
        return
    mean = view.mean_seconds
    for pause in find_pauses(history):
        kind = _find_kind(view, pause)
        cost = pause.seconds_per_step
        if view.device is not None:
            # If the loop runs ahead, a few long steps wait for the device. They do not make the mean longer than
            # `step_seconds`, so they cost nothing.
            cost = min(cost, max(0.0, mean - view.step_seconds))
        least = MIN_WORK_SHARE if kind in (None, _EVALUATING) else MIN_AVOIDABLE_SHARE
        if cost >= least * mean and _is_certain(view, pause, kind):
            lines = tuple(line for each in pause.lines if (line := view.line(each.line)))
            inner = tuple(line for each in pause.lines if (line := view.line(each.inner_line)))
            yield _Reported(pause, kind, min(1.0, cost / mean), lines, inner)


def _is_certain(view: CaptureView, pause: Pause, kind: AvoidableCall | None) -> bool:
    """Whether work of the script certainly causes a pause.

    Other causes are a disturbance of the machine, and a wait for work that earlier steps have queued.
    """
    return not _may_queue_steps(view) and (kind is not None or pause.period > 0)


def _may_queue_steps(view: CaptureView) -> bool:
    """Whether the loop may run ahead of computations that were not recorded.

    They run on a GPU or, with JAX, also on the CPU.
    """
    if view.device is not None or not (view.has_gpu or "jax" in view.frameworks):
        return False
    return not any(site.in_loop for site in view.sites_of(EventKind.DOWNLOAD, EventKind.SYNC))


def _find_kind(view: CaptureView, pause: Pause) -> AvoidableCall | None:
    """Return the kind of calls that take the time of a pause; None if unknown.

    The sampled functions decide. If they show no kind, names such as `evaluate` decide.
    """
    if not pause.lines:
        return None
    longest = pause.lines[0]
    shares = {kind.verb: _share_of(view, longest, kind) for kind in _KINDS}
    best = max(_KINDS, key=lambda kind: shares[kind.verb])
    if shares[best.verb] >= MIN_MATCH:
        return input_kind(view, pause) if best is INPUT else best
    return _EVALUATING if _evaluates(view, longest) else None


def _share_of(view: CaptureView, line: PauseLine, kind: AvoidableCall) -> float:
    """Return the share of a line's time in functions of a kind.

    If a function of the kind calls another function of the kind, their common time counts once.
    """
    frames = view.capture.history.frames if view.capture.history else ()
    counted: set[int] = set()
    total = 0.0
    for index, share in line.shares:  # callers come first
        if frames[index].caller in counted:
            counted.add(index)
        elif kind.includes(frames[index].function):
            counted.add(index)
            total += share
    return total


def _evaluates(view: CaptureView, line: PauseLine) -> bool:
    """Whether a function named like `evaluate` takes most of a line's time."""
    frames = view.capture.history.frames if view.capture.history else ()
    for index, share in line.shares:
        user_line = view.line(frames[index].line)
        name = frames[index].function.rpartition(".")[2] if user_line is None else _called_name(user_line)
        inner = user_line.function if user_line else ""
        if share >= MIN_MATCH and any(_EVALUATION_NAME.search(text.lower()) for text in (name, inner)):
            return True
    return False


def _called_name(line: Line) -> str:
    """Return the text before the first parenthesis, which contains the called function's name."""
    return line.text.partition("(")[0]


def _finding(view: CaptureView, reported: _Reported) -> Finding:
    pause, seconds = reported.pause, view.step_seconds * reported.share
    line = reported.lines[0] if reported.lines else None
    which = f"Every {format_ordinal(pause.period)} step takes" if pause.period else f"{_count(view, pause)} take"
    cause = f": the loop {reported.kind.verb}" if reported.kind else ""
    title = f"{which} {format_seconds(pause.seconds)} instead of {format_seconds(pause.usual_seconds)}{cause}"
    cures = tuple(_cures(view, reported, line, seconds))
    return Finding("pauses", title, line, seconds, cures, tuple(_evidence(view, reported)))


def _count(view: CaptureView, pause: Pause) -> str:
    history = view.capture.history
    return f"{pause.count:,} of {format_count(history.steps if history else 0, 'step')}"


def _evidence(view: CaptureView, reported: _Reported) -> Iterator[str]:
    pause = reported.pause
    included = "is a mean, so it includes" if view.uses_mean else "is a median, so it does not include"
    yield f"These are {_count(view, pause)}. The step time {included} their cost."
    inner = reported.inner_lines[0] if reported.inner_lines else None
    if inner is not None and inner not in reported.lines:
        yield f"This line spends most of its time in {location(view, inner, '')}."
    others = [location(view, line, "") for line in dict.fromkeys(reported.lines[1:]) if line != reported.lines[0]]
    if others:
        yield f"These steps also execute {', '.join(others[:MAX_LINES])}. Usual steps do not."
    yield from input_evidence(view, reported.kind)
    if pause.last_seconds >= MIN_GROWTH * pause.first_seconds:
        first, last = format_seconds(pause.first_seconds), format_seconds(pause.last_seconds)
        yield f"These steps become longer during the run, from {first} to {last}."


def _cures(view: CaptureView, reported: _Reported, line: Line | None, seconds: float) -> Iterator[Cure]:
    pause, kind = reported.pause, reported.kind
    text = source_text(line, "...")
    rarer = seconds * (1 - 1 / LESS_OFTEN)
    basis = f"only one in {LESS_OFTEN} of these steps still takes longer than a usual step"
    if kind is SAVING:
        yield Cure(
            "save in a background thread",
            _fitted_background(view, reported) or _background_code(view, reported, text),
            basis=f"only a copy of the state remains in the loop, estimated at 1/{LESS_OFTEN} of the extra time",
            changes=shorten_run(view, rarer),
        )
    if kind in (RESTART, SLOW_BATCHES):
        yield from input_cures(view, pause, kind, rarer)
        return
    title = _RARER_TITLES.get(kind.verb, kind.cure) if kind else "do this less often, or outside of the loop"
    fitted = ""
    if ".fit(" not in text:
        period = pause.period or 0
        fitted = fit_line(view, line, lambda code, number: run_less_often(code, number, period, LESS_OFTEN))
    code = fitted or _rarer_code(kind, text, LESS_OFTEN * pause.period if pause.period else 1000)
    yield Cure(title, code, basis=basis, changes=shorten_run(view, rarer))


def _rarer_code(kind: AvoidableCall | None, text: str, every: int) -> str:
    if ".fit(" in text:
        option = "validation_freq=10" if kind is _EVALUATING else f"callbacks=[...]   # save_freq={every}"
        return f"model.fit(..., {option})"
    note = "   # inside: with torch.inference_mode(), or a compiled function" if kind is _EVALUATING else ""
    return without_counter(f"{text}{note}", every)


def _fitted_background(view: CaptureView, reported: _Reported) -> str:
    """Return an edit, as text, that runs the script's call of `torch.save` in a thread."""
    places = dict.fromkeys((*reported.lines, *reported.inner_lines))
    return next(filter(None, (fit_line(view, line, save_in_thread) for line in places)), "")


def _background_code(view: CaptureView, reported: _Reported, text: str) -> str:
    if _saves_keras_model(view, reported.pause):
        return _keras_background_code(text)
    if "torch" in view.frameworks:
        return (
            "state = copy.deepcopy(...)   # what torch.save gets now; import copy, threading\n"
            "writer = threading.Thread(target=torch.save, args=(state, path))   # path: what torch.save gets now\n"
            "writer.start()   # call writer.join() before the next save and after the loop"
        )
    if "jax" in view.frameworks:
        return (
            "saver = orbax.checkpoint.AsyncCheckpointer(orbax.checkpoint.StandardCheckpointHandler())\n"
            "saver.save(path, args=orbax.checkpoint.args.StandardSave(state))   # returns before the files are written"
        )
    # Each Checkpoint object keeps a thread and a copy of the weights, so the code makes only one object.
    return (
        "checkpoint = tf.train.Checkpoint(model=model)   # before the loop\n"
        "options = tf.train.CheckpointOptions(enable_async=True)   # before the loop\n"
        f"checkpoint.write(path, options=options)   # instead of {text}"
    )


def _saves_keras_model(view: CaptureView, pause: Pause) -> bool:
    """Whether functions of Keras save files in the long steps of a pause."""
    frames = view.capture.history.frames if view.capture.history else ()
    called = (frames[index].function for line in pause.lines for index, _ in line.shares)
    return any(function.startswith("keras.") and SAVING.includes(function) for function in called)


def _keras_background_code(text: str) -> str:
    """Return code that saves a Keras model in a thread, with any backend.

    It uses no `tf.train.Checkpoint`, because a second asynchronous write fails on Keras 3.
    """
    called = _KERAS_SAVE.search(text)
    model = called[1] if called else "model"
    return (
        "# import threading; writer.join() before the next save and at the end\n"
        f"variables = {model}.variables + {model}.optimizer.variables\n"
        "state = [variable.numpy().copy() for variable in variables]\n"
        "writer = threading.Thread(target=np.savez, args=('state.npz', *state))\n"
        f"writer.start()   # instead of {text}\n"
        "# To load, after model.optimizer.build(model.trainable_variables):\n"
        "# values = np.load('state.npz').values()\n"
        "# for variable, value in zip(variables, values): variable.assign(value)"
    )

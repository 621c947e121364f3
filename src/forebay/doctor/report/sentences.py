"""What the screen and the page both say of a verdict, in sentences."""

from collections import Counter
from collections.abc import Iterator
from statistics import median

from forebay.doctor.analyse.case import Case
from forebay.doctor.diagnosis.diagnose import Verdict
from forebay.doctor.model.events import Kind
from forebay.doctor.model.formatting import (
    at_most,
    counted,
    interval,
    near,
    percent,
    plain,
    predicted,
    seconds,
    seconds_between,
)
from forebay.doctor.rules.finding import Cure, Finding

__all__ = [
    "early_end",
    "explained",
    "foretold",
    "gain",
    "headline",
    "made_of",
    "no_loop",
    "not_seen",
    "outcome",
    "pace",
    "share",
    "tried",
]

LONGEST_ERROR = 80  # letters of it; the whole of it was printed when it was raised
MOST_APART = 0.25  # of a step: recorded ones that took so much more or less are not quite such steps
HEALTHY = "Nothing holds this script back that the doctor knows of"

# How events are counted in a sentence; what is not here is of no interest where there is no loop.
_NOUNS = {
    Kind.UPLOAD: "upload",
    Kind.DOWNLOAD: "download",
    Kind.MOVE: "move",
    Kind.INPUT: "batch",
    Kind.COMPILE: "compilation",
    Kind.RUN: "compiled call",
    Kind.SYNC: "wait for the device",
}
_PLURALS = {"batch": "batches", "wait for the device": "waits for the device"}


def headline(verdict: Verdict) -> str:
    """The one thing to know, without its full stop."""
    if verdict.case.steps is None:
        return "No loop was found, so there is no step to judge"
    return verdict.main.title.rstrip(".") if verdict.main else HEALTHY


def outcome(verdict: Verdict) -> str:
    """What becomes of a step once the main cause is cured; nothing where there is none."""
    if verdict.main is None or not verdict.main.cures:
        return ""
    cure, step = verdict.main.best, verdict.case.step_seconds
    takes = seconds_between(*predicted(cure.low, cure.high, step))
    return f"Cured, a step takes {takes} instead of {seconds(step)}: {gain(verdict, cure)}."


def tried(verdict: Verdict) -> list[str]:
    """Predicted beside measured, where the cure was tried; nothing where nobody asked for it."""
    told = verdict.verification
    if told is None:
        return []
    if told.measured is None or told.way is None or told.predicted is None:
        return [f"The cure was not tried: {told.trouble}."]
    before = f"{seconds_between(*told.predicted)} predicted, {seconds(verdict.case.step_seconds)} now"
    return [
        f"Tried: {seconds(told.measured)} a step ({before}).",
        f"Emulated: {told.way.in_words}. What that run computed is stale; only its speed counts.",
    ]


def foretold(verdict: Verdict) -> list[str]:
    """A step with all cures together, and on another machine, as far as the recorded steps can be run again."""
    step = verdict.case.step_seconds
    told = []
    if verdict.together is not None:
        takes = seconds_between(verdict.together.low, verdict.together.high)
        told.append(f"All cures together: {takes} a step, run again with the best of each.")
    there = verdict.elsewhere
    if there is not None and there.step is None:
        told.append(f"A step on {there.told} was not reckoned: {there.doubt}.")
    elif there is not None and there.step is not None:
        takes = seconds_between(there.step.low, there.step.high)
        told.append(f"On {there.told} a step would take {takes} instead of {seconds(step)}, as the script is.")
    return told


def gain(verdict: Verdict, cure: Cure) -> str:
    return f"{interval(cure.low, cure.high, verdict.case.step_seconds)} as fast"


def share(verdict: Verdict, finding: Finding) -> float:
    """Of a step that a cause costs."""
    step = verdict.case.step_seconds
    return min(1.0, finding.seconds / step) if step else 0.0


def pace(verdict: Verdict) -> str:
    """How long a step takes, which steps say so, and what watching cost: never zero where it was not measured."""
    case = verdict.case
    assert case.steps is not None
    kind, api, number = case.steps.anchor
    line = case.line(number)
    end = f"{api} ({near(line, case.capture.script)})" if line else api
    if kind == Kind.OPS:
        span = f"{seconds(case.step_seconds)}, the median of {len(case.steps):,}"
        return f"Nothing marks a step, so it is a span of {end}: {span}."
    takes = f"A step takes {seconds(case.step_seconds)}, the median of"
    if case.overhead is None:
        return f"{takes} {len(case.steps):,} that end at {end}. What watching them cost was not measured."
    watched = f"The {len(case.steps):,} watched, that end at {end}, took {_longer(case, case.overhead)}."
    return f"{takes} {len(case.untraced):,} that nobody watched. {watched}"


def _longer(case: Case, overhead: float) -> str:
    """Watching makes no step shorter: where they were, it is the steps that differ."""
    assert case.steps is not None
    less = 1 - case.steps.seconds / median(case.untraced)
    if less > MOST_APART:
        return f"{percent(less)} less: steps differ much"
    return f"{percent(overhead)} longer" if overhead >= 0.0005 else "no longer"


def made_of(verdict: Verdict) -> str:
    """Which step the parts are of: a mean one, where the median is what a step is said to take."""
    device = verdict.case.device
    if device is not None:
        apart = abs(device.seconds - verdict.case.step_seconds) > MOST_APART * verdict.case.step_seconds
        took = f", which took {seconds(device.seconds)} each" if apart else ""
        return f"By {counted(len(device), 'step')} recorded on the device{took}, such a step is made of:"
    return f"The mean of those watched, {seconds(sum(verdict.case.parts.values()))}, is made of:"


def explained(verdict: Verdict) -> list[str]:
    """How much of what crossed is known by its line; without a record of the device, whether there was a GPU at all."""
    device = verdict.case.device
    if device is None:
        return list(_without_gpu(verdict.case))
    ways = {"host to device": "sent to the device", "device to host": "brought back"}
    shares = {told: device.coverage(direction) for direction, told in ways.items()}
    known = [f"{percent(share)} of the bytes {told}" for told, share in shares.items() if share is not None]
    return [f"Lines are known for {' and '.join(known)}."] if known else ["Nothing crossed between host and device."]


def _without_gpu(case: Case) -> Iterator[str]:
    """Whoever means to use one should know that nobody did; nothing where that is not known."""
    counts = [facts.get("gpus") for facts in case.frameworks.values()]
    if counts and all(count == 0 for count in counts):
        yield f"No GPU is seen by {' or '.join(case.frameworks)}: what the CPU computes is in these parts too."


def no_loop(verdict: Verdict) -> list[str]:
    """What was seen where nothing came again, and the way on."""
    capture = verdict.case.capture
    if not verdict.case.frameworks and not capture.events:
        if early_end(verdict):
            return ["It had not imported a framework yet."]
        return [
            "The script imported no framework that the doctor knows: torch, tensorflow, keras, jax or cupy.",
            "Give it the script that trains; with -m, the module.",
        ]
    counts = Counter(event.kind for event in capture.events)
    seen = [_counted(counts[kind], noun) for kind, noun in _NOUNS.items() if counts[kind]]
    told = f"Seen in {seconds(capture.seconds)}: {', '.join(seen) or 'nothing that crosses or waits'}."
    return [
        told,
        "A step is told by what comes again at least four times: an optimizer's step, a batch of a loader, a compiled "
        "call, a copy, or a value read back. Let the script run for more of them.",
    ]


def early_end(verdict: Verdict) -> str:
    """That the script did not end by itself, where it did not."""
    ended = plain(verdict.case.capture.ended)
    if ended == "done":
        return ""
    told = at_most(ended.rstrip(".: "), LONGEST_ERROR)  # a colon comes after it
    how = f"was {ended}" if ended in ("interrupted", "terminated") else f"ended with {told}"
    return f"The script {how}: this is of what it did until then."


def not_seen(verdict: Verdict) -> list[str]:
    return [*verdict.case.capture.notes, *verdict.silent]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {_PLURALS[noun]}" if count != 1 and noun in _PLURALS else counted(count, noun)

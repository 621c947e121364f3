"""Large arrays that became constants of a graph: each trace holds them once more, on the host and on the device.

It warns: what it costs is memory and the time to compile, not seconds of a step.
"""

from collections.abc import Iterator

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.finding import Cure, Finding
from forebay.doctor.analyse.framework import feeds, framework_of
from forebay.doctor.analyse.phrases import feed_code
from forebay.doctor.events import Event, Kind
from forebay.doctor.words import counted, seconds
from forebay.spec import format_nbytes

__all__ = ["examine"]

LARGEST_NBYTES = 256 << 20


def examine(case: Case) -> Iterator[Finding]:
    """One finding a line, for the largest it embeds; every trace of it is counted."""
    lines: dict[tuple[str, int], list[Event]] = {}
    for event in case.events(Kind.BUILD, Kind.COMPILE):
        if case.steps and _embedded(event) > LARGEST_NBYTES:
            lines.setdefault((event.api, event.line), []).append(event)
    for same in lines.values():
        yield _finding(case, max(same, key=_embedded), len(same))


def _embedded(event: Event) -> int:
    return (event.detail or {}).get("constants_nbytes") or 0


def _finding(case: Case, event: Event, times: int) -> Finding:
    framework = framework_of(case, event.api)
    how = "memory and compiling, not seconds of a step"
    given = Cure("give it as an argument", _ARGUMENT.get(framework, _ARGUMENT["jax"]), 0.0, 0.0, how)
    feed = Cure("a feed, which refers to the array", feed_code(case, feeds(case, event.api)), 0.0, 0.0, how)
    amount = format_nbytes(_embedded(event))
    return Finding(
        rule="constants",
        title=f"{event.api} puts {amount} of arrays into a graph as constants, {counted(times, 'time')}",
        line=case.line(event.line),
        seconds=0.0,
        cures=(given, feed),
        evidence=(f"{seconds(event.seconds)} to make it; TensorFlow refuses graphs of 2 GiB",),
    )


_ARGUMENT = {
    "tensorflow": "@tf.function\ndef step(table, x): ...   # step(table, x): not a global `table`",
    "jax": "@jax.jit\ndef step(table, x): ...   # step(table, x): not a closure over `table`",
    "torch": "class Model(nn.Module):   # self.register_buffer('table', table), not a global\n    ...",
}

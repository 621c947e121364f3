"""Large arrays that became constants of a graph: each trace holds them once more, on the host and on the device.

It warns: what it costs is memory and the time to compile, not seconds of a step.
"""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.framework import feeds, framework_of
from forebay.doctor.analyse.memory import Embedded, embedded_in
from forebay.doctor.model.formatting import counted, seconds
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.wording import feed_code

__all__ = ["examine"]

LARGEST_NBYTES = 64 << 20


def examine(case: Case) -> Iterator[Finding]:
    """One finding a line, for the largest it embeds; every trace of it is counted."""
    if case.steps is None:
        return
    for embedded in embedded_in(case):
        if embedded.nbytes > LARGEST_NBYTES:
            yield _finding(case, embedded)


def _finding(case: Case, embedded: Embedded) -> Finding:
    framework = framework_of(case, embedded.api)
    how = "memory and compiling, not seconds of a step"
    given = Cure("give it as an argument", _ARGUMENT.get(framework, _ARGUMENT["jax"]), 0.0, 0.0, how)
    feed = Cure("a feed, which refers to the array", feed_code(case, feeds(case, embedded.api)), 0.0, 0.0, how)
    amount, times = format_nbytes(embedded.nbytes), counted(embedded.times, "time")
    return Finding(
        rule="constants",
        title=f"{embedded.api} puts {amount} of arrays into a graph as constants, {times}",
        line=embedded.line,
        seconds=0.0,
        cures=(given, feed),
        evidence=(
            f"{format_nbytes(embedded.total_nbytes)} in graphs in all, each beside the array itself",
            f"{seconds(embedded.seconds)} to make the largest; TensorFlow refuses graphs of 2 GiB",
        ),
    )


_ARGUMENT = {
    "tensorflow": "@tf.function\ndef step(table, x): ...   # step(table, x): not a global `table`",
    "jax": "@jax.jit\ndef step(table, x): ...   # step(table, x): not a closure over `table`",
    "torch": "class Model(nn.Module):   # self.register_buffer('table', table), not a global\n    ...",
}

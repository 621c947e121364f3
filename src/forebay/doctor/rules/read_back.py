"""A value brought back to the host every step: the device stands still until Python has it and asks for more."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of, won_by_not_waiting
from forebay.doctor.analyse.framework import feeds, framework_of, runs_ahead
from forebay.doctor.predict.cure_changes import deferred
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import calls, often

__all__ = ["HOW", "examine", "recognises"]

HOW = "Python goes on while the device computes: at most the shorter of the two is won, and each wait's round trip"


def recognises(case: Case, site: Site) -> bool:
    return site.in_loop and runs_ahead(case, site)


def examine(case: Case) -> Iterator[Finding]:
    for site in charged(case, "read_back"):
        cost = cost_of(case, site.events)
        yield Finding(
            rule="read_back",
            title=f"{site.api} waits for the device {often(site)}",
            line=site.line,
            seconds=cost,
            cures=_cures(case, site, cost),
            evidence=(f"{format_nbytes(site.nbytes)} a step come back", *_others(case, site)),
        )


def _cures(case: Case, site: Site, cost: float) -> tuple[Cure, ...]:
    low, high = won_by_not_waiting(case, cost, calls(site))
    if framework_of(case, site.api) == "keras":  # its own loop reads, so the script can only have it read less often
        return (Cure("let Keras look at its losses less often", _LESS_OFTEN, low, high, HOW, deferred(case, site)),)
    later = Cure(
        "let results come back later, in order, without a wait",
        "import forebay as fb\n"
        "readback = fb.Readback()                      # in front of the loop\n"
        "readback.put(loss, tag=step)                  # in the loop: does not wait\n"
        "for step, value in readback.ready(): ...      # whatever has arrived; readback.drain() after the loop",
        low,
        high,
        HOW,
        deferred(case, site),
    )
    framework = feeds(case, site.api)
    if framework not in _ADD_UP:
        return (later,)
    code = _ADD_UP[framework]
    return Cure("add up on the device, look every hundredth step", code, low, high, HOW, deferred(case, site)), later


def _others(case: Case, site: Site) -> Iterator[str]:
    """Cured alone, one of several waits may only hand its time to the next."""
    waits = [other for rule in ("read_back", "host_check", "sync") for other in charged(case, rule)]
    others = [other for other in waits if other.line != site.line]
    if others:
        where = ", ".join(sorted({f"line {other.line.number}" if other.line else other.api for other in others})[:3])
        yield f"others wait in the same step ({where}): the win needs all of them cured"


_LESS_OFTEN = "model.compile(..., steps_per_execution=50)   # fifty steps in one call, whose losses are read once"
_ADD_UP = {
    "torch": "total += loss.detach()                        # a tensor: nobody waits\n"
    "if step % 100 == 0: print(total.item())",
    "tensorflow": "total.assign_add(loss)                        # total = tf.Variable(0.0) in front of the loop\n"
    "if step % 100 == 0: tf.print(total)",
    "jax": "total = total + loss                          # an array: nobody waits\n"
    "if step % 100 == 0: print(float(total))",
    "cupy": "total += loss                                 # an array: nobody waits\n"
    "if step % 100 == 0: print(float(total))",
}

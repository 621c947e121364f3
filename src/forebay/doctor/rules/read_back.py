"""The rule for values read back in every step, which leave the device idle.

After the read-back, the device has no work until Python queues more.
"""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of, gain_without_wait
from forebay.doctor.analyse.framework import feed_framework, framework_of, is_asynchronous
from forebay.doctor.predict.cure_changes import defer_waits
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import sites_for
from forebay.doctor.rules.wording import calls_per_step, frequency

__all__ = ["READ_BASIS", "examine", "recognises"]

READ_BASIS = (
    "Python continues while the device computes; this saves the round trip "
    "of each wait, and at most the shorter of both times"
)


def recognises(view: CaptureView, site: CallSite) -> bool:
    return site.in_loop and is_asynchronous(view, site)


def examine(view: CaptureView) -> Iterator[Finding]:
    for site in sites_for(view, "read_back"):
        cost = cost_of(view, site.events)
        yield Finding(
            rule="read_back",
            title=f"{site.api} waits for the device {frequency(site)}",
            line=site.line,
            seconds=cost,
            cures=_cures(view, site, cost),
            evidence=(f"The script reads back {format_nbytes(site.nbytes)} per step.", *_others(view, site)),
        )


def _cures(view: CaptureView, site: CallSite, cost: float) -> tuple[Cure, ...]:
    low, high = gain_without_wait(view, cost, calls_per_step(site))
    if (
        framework_of(view, site.api) == "keras"
    ):  # Keras reads in its own loop; the script can only make it read less often
        return (
            Cure("let Keras read its losses less often", _LESS_OFTEN, low, high, READ_BASIS, defer_waits(view, site)),
        )
    later = Cure(
        "receive results later, in order, without a wait",
        "import forebay as fb\n"
        "readback = fb.Readback()                      # before the loop\n"
        "readback.put(loss, tag=step)                  # in the loop: does not wait\n"
        "for step, value in readback.ready(): ...      # results that have arrived; readback.drain() after the loop",
        low,
        high,
        READ_BASIS,
        defer_waits(view, site),
    )
    framework = feed_framework(view, site.api)
    if framework not in _ADD_UP:
        return (later,)
    code = _ADD_UP[framework]
    return Cure(
        "sum on the device, read every hundredth step", code, low, high, READ_BASIS, defer_waits(view, site)
    ), later


def _others(view: CaptureView, site: CallSite) -> Iterator[str]:
    """Warn about other waits. If only one of them is cured, its time may move to the next."""
    waits = [other for rule in ("read_back", "host_check", "sync") for other in sites_for(view, rule)]
    others = [other for other in waits if other.line != site.line]
    if others:
        where = ", ".join(sorted({f"line {other.line.number}" if other.line else other.api for other in others})[:3])
        yield f"The same step has other waits ({where}). Cure all of them to get this gain."


_LESS_OFTEN = "model.compile(..., steps_per_execution=50)   # fifty steps per call; their losses are read once"
_ADD_UP = {
    "torch": "total += loss.detach()                        # a tensor: no wait\n"
    "if step % 100 == 0: print(total.item())",
    "tensorflow": "total.assign_add(loss)                        # total = tf.Variable(0.0) before the loop\n"
    "if step % 100 == 0: tf.print(total)",
    "jax": "total = total + loss                          # an array: no wait\nif step % 100 == 0: print(float(total))",
    "cupy": "total += loss                                 # an array: no wait\n"
    "if step % 100 == 0: print(float(total))",
}

"""The rule for values that the loop reads back in every step.

A read-back waits until the device has finished all queued work. Then the device is idle until Python queues more work.
"""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import feed_framework, framework_of, is_asynchronous
from forebay.doctor.model.formatting import format_seconds
from forebay.doctor.predict.cure_changes import remove_waits_of_line
from forebay.doctor.rules import keras_steps
from forebay.doctor.rules.edits import is_fitted
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_more_steps, fit_read
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import frequency

__all__ = ["READ_BASIS", "examine", "recognises"]

READ_BASIS = "Python continues while the device computes"


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether a call site in the loop reads back values that its framework computes asynchronously.

    If the rule `keras_steps` reports the short steps of Keras, this rule does not report the reads in them.
    """
    if framework_of(view, site.api) == "keras" and keras_steps.is_reported(view):
        return False
    return site.in_loop and is_asynchronous(view, site)


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per call site of this rule."""
    for site in view.sites_for("read_back"):
        cost = cost_of(view, site.events)
        yield Finding(
            rule="read_back",
            title=f"{site.api} waits for the device {frequency(site)}",
            line=site.line,
            seconds=cost,
            cures=_cures(view, site),
            evidence=(
                f"The script reads back {format_nbytes(site.nbytes)} per step and waits {format_seconds(cost)}.",
                *_other_waits(view, site),
            ),
            is_wait=True,
        )


def _cures(view: CaptureView, site: CallSite) -> tuple[Cure, ...]:
    if framework_of(view, site.api) == "keras":
        # Keras reads in its own loop; the script can only make Keras read less often.
        title = "let Keras read its losses less often"
        return (Cure(title, fit_more_steps(view), READ_BASIS, remove_waits_of_line(view, site)),)
    readback_cure = Cure(
        "receive results later, in order, without a wait",
        fit_read(view, site, later=True)
        or "import forebay as fb\n"
        "readback = fb.Readback()                      # before the loop\n"
        "readback.put(loss, tag=step)                  # in the loop: does not wait\n"
        "for step, value in readback.ready(): ...      # results that have arrived; readback.drain() after the loop",
        READ_BASIS,
        remove_waits_of_line(view, site),
    )
    framework = feed_framework(view, site.api)
    if framework not in _SUM_CODE:  # such as Keras: it runs the loop, so the script has no place for the sum
        return (readback_cure,)
    code = fit_read(view, site, later=False) or _SUM_CODE[framework]
    return Cure(_few_reads_title(code), code, READ_BASIS, remove_waits_of_line(view, site)), readback_cure


def _few_reads_title(code: str) -> str:
    """Return the title that says what the code of the cure does."""
    if not is_fitted(code):
        return "sum on the device, read every hundredth step"
    if "% 100" in code:
        return "read the value every hundredth step"
    return "keep the values on the device, read them after the loop"


def _other_waits(view: RuleView, site: CallSite) -> Iterator[str]:
    """Yield a sentence about other waits in the step.

    If the script removes only one wait, the loop may wait longer at the next one.
    """
    waits = [other for rule in ("read_back", "host_check", "sync") for other in view.sites_for(rule)]
    others = [other for other in waits if other.line != site.line]
    if others:
        names = sorted({f"line {other.line.number}" if other.line else other.api for other in others})
        yield f"The same step has other waits ({', '.join(names[:3])}). Cure all of them to get this gain."


_SUM_CODE = {
    "torch": "total += loss.detach()                        # a tensor: no wait\n"
    "if step % 100 == 0: print(total.item())",
    "tensorflow": "total.assign_add(loss)                        # total = tf.Variable(0.0) before the loop\n"
    "if step % 100 == 0: tf.print(total)",
    "jax": "total = total + loss                          # an array: no wait\nif step % 100 == 0: print(float(total))",
    "cupy": "total += loss                                 # an array: no wait\n"
    "if step % 100 == 0: print(float(total))",
}

"""The rule for explicit synchronisation in every step. While the host waits, it queues no work."""

from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.queue_waits import QUEUE_WAIT
from forebay.doctor.predict.cure_changes import remove_waits_of_line
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.read_back import READ_BASIS
from forebay.doctor.rules.step_edits import every_nth_step, without_counter
from forebay.doctor.rules.wording import frequency, source_text

__all__ = ["examine", "recognises"]


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether the loop synchronises at a call site.

    A wait for a free place in the queue of JAX does not count, because the script cannot avoid it.
    """
    return site.in_loop and site.api != QUEUE_WAIT


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per call site of this rule."""
    for site in view.sites_for("sync"):
        cost = cost_of(view, site.events)
        statement = source_text(site.line, f"{site.api}()")
        yield Finding(
            rule="sync",
            title=f"{site.api} makes the loop wait for the device {frequency(site)}",
            line=site.line,
            seconds=cost,
            cures=(
                Cure(
                    "synchronise only to read a timer, not in every step",
                    fit_line(view, site.line, every_nth_step)
                    or without_counter(f"{statement}   # or once after the loop", 100),
                    READ_BASIS,
                    remove_waits_of_line(view, site),
                ),
            ),
            evidence=(
                f"The script synchronised {len(site.events)} times in {site.steps} steps. "
                "Reading a value waits for the device anyway, so this wait is not needed.",
            ),
            is_wait=True,
        )

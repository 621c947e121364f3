"""A wait for the device that the script asks for every step: nothing is queued while it lasts."""

from collections.abc import Iterator

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of, won_by_not_waiting
from forebay.doctor.predict.cure_changes import deferred
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.read_back import HOW
from forebay.doctor.rules.wording import calls, often, told

__all__ = ["examine", "recognises"]


def recognises(case: Case, site: Site) -> bool:
    return site.in_loop


def examine(case: Case) -> Iterator[Finding]:
    for site in charged(case, "sync"):
        cost = cost_of(case, site.events)
        low, high = won_by_not_waiting(case, cost, calls(site))
        asked = told(site.line, f"{site.api}()")
        yield Finding(
            rule="sync",
            title=f"{site.api} stops the loop for the device {often(site)}",
            line=site.line,
            seconds=cost,
            cures=(
                Cure(
                    "wait when a clock is read, not every step",
                    f"if step % 100 == 0:\n    {asked}   # or once, after the loop",
                    low,
                    high,
                    HOW,
                    deferred(case, site),
                ),
            ),
            evidence=(f"{len(site.events)} waits in {site.steps} steps; whoever reads a value waits for it anyway",),
        )

"""A value brought back to the host every step: the device stands still until Python has it and asks for more."""

from collections.abc import Iterator

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.finding import Cure, Finding
from forebay.doctor.events import Kind
from forebay.spec import format_nbytes

__all__ = ["examine"]

LARGE_NBYTES = 1 << 20  # from here on it is data that comes back, not a number


def examine(case: Case) -> Iterator[Finding]:
    for site in case.of(Kind.DOWNLOAD):
        if site.in_loop and site.nbytes / site.per_step < LARGE_NBYTES:
            yield _finding(site)


def _finding(site: Site) -> Finding:
    times = "every step" if site.per_step < 1.5 else f"{site.per_step:.0f} times a step"
    return Finding(
        rule="read_back",
        title=f"{site.api} waits for the device {times}",
        line=site.line,
        seconds=site.seconds,
        cures=(
            Cure(
                "bring results back later, or every hundredth step",
                "readback = forebay.Readback()\n"
                "readback.put(loss, tag=step)        # in the loop: does not wait\n"
                "for result in readback.ready(): ...  # whatever has arrived",
                low=site.seconds * 0.5,
                high=site.seconds,
                how="the waits it removes, as measured; work they hid may take their place",
            ),
        ),
        evidence=(f"{format_nbytes(site.nbytes)} a step come back, {site.seconds * 1e3:.2f} ms of waiting",),
    )

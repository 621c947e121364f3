"""The same data uploaded again and again: a conversion that belongs before the loop."""

from collections import Counter
from collections.abc import Iterator

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.finding import Cure, Finding
from forebay.doctor.events import Kind
from forebay.spec import format_nbytes

__all__ = ["examine"]

FEWEST = 3  # times the same data, or it may be chance
SMALLEST_NBYTES = 1 << 10  # a number or two is no data


def examine(case: Case) -> Iterator[Finding]:
    for site in case.of(Kind.UPLOAD):
        keys = Counter(key for key in site.values("key") if key)
        again = sum(count - 1 for count in keys.values() if count >= FEWEST)
        if again and site.nbytes / site.per_step >= SMALLEST_NBYTES:
            yield _finding(site, again / len(site.events), len(keys))


def _finding(site: Site, share: float, different: int) -> Finding:
    won = site.seconds * share
    framework = {"tf": "tensorflow", "torch": "torch", "Tensor": "torch", "cupy": "cupy"}
    to = framework.get(site.api.split(".")[0], "jax")
    return Finding(
        rule="repeated_upload",
        title=f"{site.api} uploads the same {format_nbytes(site.nbytes / site.per_step)} again and again",
        line=site.line,
        seconds=won,
        cures=(
            Cure("convert it before the loop", "x = ...   # move this line in front of the loop", won * 0.9, won),
            Cure(
                "or let the loop ask every step and upload once",
                f'x = forebay.upload_once(array, to="{to}")',
                won * 0.85,
                won,
            ),
        ),
        evidence=(
            f"{site.per_step:.1f} times a step, {share:.0%} of them data that was uploaded before "
            f"({different} different)",
        ),
    )

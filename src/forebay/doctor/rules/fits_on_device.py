"""Data that is sent to the device anew in every epoch, though all of it would fit there."""

from collections import Counter
from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import feeds, on_device, uploads_to
from forebay.doctor.model.events import Event, Kind
from forebay.doctor.predict import cure_changes
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import feed_code

__all__ = ["examine", "recognises"]

MOST_OF_FREE = 0.5  # device memory that data may take: the rest is for what the step makes
LEAST_SHARE = 0.5  # of the uploads that come again
EPOCHS = 1.5  # times all of the data, or it may never be wanted again


def recognises(case: Case, site: Site) -> bool:
    free = _free_nbytes(case, site) if site.in_loop and on_device(site) else 0
    return free > 0 and 0 < _data_nbytes(case, site) <= MOST_OF_FREE * free


def examine(case: Case) -> Iterator[Finding]:
    for site in charged(case, "fits_on_device"):
        cost = cost_of(case, site.events)
        total, free = format_nbytes(_data_nbytes(case, site)), format_nbytes(_free_nbytes(case, site))
        framework, changes = feeds(case, site.api), cure_changes.on_device(case, site)
        how = "the uploads it removes after the first epoch; taking rows out on the device costs some of it"
        whole = f'everything = fb.upload_once(x, to="{uploads_to(case, site.api)}")   # rows: everything[indices]'
        yield Finding(
            rule="fits_on_device",
            title=f"{site.api} uploads the same {total} in every epoch, with {free} free there",
            line=site.line,
            seconds=cost,
            cures=(
                Cure(
                    "a feed keeps it there after the first epoch", feed_code(case, framework), 0.0, cost, how, changes
                ),
                Cure("upload all of it once", f"import forebay as fb\n{whole}", 0.0, cost, how, changes),
            ),
            evidence=(f"{format_nbytes(sum(event.nbytes for event in _uploads(case, site)))} were sent in all",),
        )


def _data_nbytes(case: Case, site: Site) -> int:
    """All the data of this line, where it is known to come again; 0 where not."""
    uploads = _uploads(case, site)
    sizes = {(e.detail or {}).get("key"): e.nbytes for e in uploads if (e.detail or {}).get("key")}
    counts = Counter((event.detail or {}).get("key") for event in uploads)
    again = sum(count for key, count in counts.items() if key and count >= 2)
    if again >= LEAST_SHARE * len(uploads) and again:
        return sum(sizes.values())
    held = max((event.nbytes for event in case.events(Kind.BUILD)), default=0)
    return held if held and sum(event.nbytes for event in uploads) >= EPOCHS * held else 0


def _uploads(case: Case, site: Site) -> list[Event]:
    """What this line has uploaded since the script began: an epoch may be longer than what was watched closely."""
    lines = {event.line for event in site.events}
    return [event for event in case.events(Kind.UPLOAD) if event.line in lines and event.api == site.api]


def _free_nbytes(case: Case, site: Site) -> int:
    """Device memory nobody has taken, as the framework says; 0 where it does not."""
    facts = case.frameworks.get(uploads_to(case, site.api)) or {}
    free = facts.get("free_nbytes") or (facts.get("total_nbytes") or 0) - (facts.get("peak_nbytes") or 0)
    return max(0, free)

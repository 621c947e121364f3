"""The rule for data that every epoch uploads again, although it fits on the device."""

from collections import Counter
from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import array_framework, feed_framework, is_on_device
from forebay.doctor.model.events import EventKind, LedgerEvent
from forebay.doctor.predict import upload_cure_changes
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_keep_on_device
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import feed_code

__all__ = ["examine", "recognises"]

FREE_SHARE = 0.5  # share of the free device memory that the data may take; the step may need the other half
MIN_SHARE = 0.5  # share of the uploads that must repeat earlier data
MIN_EPOCHS = 1.5  # how often the script must upload the data; fewer uploads prove no second epoch


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether a call site repeats data that fits into FREE_SHARE of the free memory."""
    free = _free_nbytes(view, site) if site.in_loop and is_on_device(site) else 0
    return free > 0 and 0 < _data_nbytes(view, site) <= FREE_SHARE * free


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per call site of this rule."""
    for site in view.sites_for("fits_on_device"):
        cost = cost_of(view, site.events)
        total, free = format_nbytes(_data_nbytes(view, site)), format_nbytes(_free_nbytes(view, site))
        framework, changes = feed_framework(view, site.api), upload_cure_changes.keep_on_device(view, site)
        basis = "the cure removes uploads after the first epoch; selecting rows on the device takes part of their time"
        upload = f'everything = fb.upload_once(x, to="{array_framework(view, site.api)}")   # rows: everything[indices]'
        code = fit_keep_on_device(view, site) or f"import forebay as fb\n{upload}"
        yield Finding(
            rule="fits_on_device",
            title=f"{site.api} uploads the same {total} in every epoch; the device has {free} free",
            line=site.line,
            seconds=cost,
            cures=(
                Cure(
                    "use a feed, which keeps the data on the device after the first epoch",
                    feed_code(view, framework, site),
                    basis,
                    changes,
                ),
                Cure("upload all data once", code, basis, changes),
            ),
            evidence=(
                f"This line uploaded {format_nbytes(sum(event.nbytes for event in _uploads(view, site)))} in total.",
            ),
        )


def _data_nbytes(view: CaptureView, site: CallSite) -> int:
    """Return the bytes of all data that a line uploads; 0 without repetition.

    Uploads of equal data have equal keys. If too few keys are equal, assume that the line uploads the largest object
    that the script builds, such as a dataset, if it uploads at least MIN_EPOCHS times as many bytes.
    """
    uploads = _uploads(view, site)
    sizes = {(e.detail or {}).get("key"): e.nbytes for e in uploads if (e.detail or {}).get("key")}
    counts = Counter((event.detail or {}).get("key") for event in uploads)
    repeated = sum(count for key, count in counts.items() if key and count >= 2)
    if repeated >= MIN_SHARE * len(uploads) and repeated:
        return sum(sizes.values())
    largest = max((event.nbytes for event in view.events_of(EventKind.BUILD)), default=0)
    return largest if largest and sum(event.nbytes for event in uploads) >= MIN_EPOCHS * largest else 0


def _uploads(view: CaptureView, site: CallSite) -> list[LedgerEvent]:
    """Return all uploads of a line in the run.

    The profiled steps alone may be only a part of an epoch.
    """
    lines = {event.line for event in site.events}
    return [event for event in view.events_of(EventKind.UPLOAD) if event.line in lines and event.api == site.api]


def _free_nbytes(view: CaptureView, site: CallSite) -> int:
    """Return the free device memory that the framework reports; 0 if unknown."""
    facts = view.frameworks.get(array_framework(view, site.api)) or {}
    free = facts.get("free_nbytes") or (facts.get("total_nbytes") or 0) - (facts.get("peak_nbytes") or 0)
    return max(0, free)

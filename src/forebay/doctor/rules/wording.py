"""Phrases and code that the titles, evidence and cures of several rules share."""

from collections import Counter

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.framework import array_framework
from forebay.doctor.model.events import EventKind, Line
from forebay.doctor.model.formatting import format_location, format_percent
from forebay.doctor.predict import upload_cure_changes
from forebay.doctor.rules.finding import Cure
from forebay.doctor.rules.fitted_code import fit_feed, fit_keep_on_device, has_excerpt

__all__ = [
    "GRAPH_ITERATOR_CODE",
    "SESSION",
    "array_feed_code",
    "batch_rows",
    "calls_per_step",
    "nbytes_per_call",
    "feed_code",
    "feed_fits",
    "keep_on_device_cure",
    "keep_on_device_fits",
    "most_frequent_function",
    "frequency",
    "location",
    "source_text",
]

# The API name of a run of a TensorFlow session. A session accepts no tensors from outside its graph, so the input
# pipeline must be part of the graph.
SESSION = "Session.run"
GRAPH_ITERATOR_CODE = (
    "iterator = tf.compat.v1.data.make_initializable_iterator(dataset)   # run session.run(iterator.initializer) once\n"
    "x, y = iterator.get_next()   # replaces the placeholders"
)


_FEED_LOOP = "for x_batch, y_batch in feed: ...   # batches are already on the device"


def calls_per_step(site: CallSite) -> float:
    """Return how often a step runs the line of a call site.

    If the line makes different calls, such as `tensor.cpu().numpy()`, the most frequent call counts.
    """
    most_calls = max(Counter(event.api for event in site.events).values(), default=0)
    return most_calls / site.steps if site.steps else 0.0


def frequency(site: CallSite) -> str:
    """Return how often a step runs a call site, such as "3 times per step"."""
    count = calls_per_step(site)
    if count >= 1.5:  # rounds to 2
        return f"{count:.0f} times per step"
    return "every step" if count >= 0.95 else f"in {format_percent(count)} of steps"


def most_frequent_function(site: CallSite) -> tuple[str, int]:
    """Return the function with the most events, and the number of its events.

    One line may build or compile several functions. Events without a function name belong to the function "".
    """
    names = Counter(str((event.detail or {}).get("function", "")) for event in site.events)
    return max(names.items(), key=lambda item: item[1], default=("", 0))


def nbytes_per_call(site: CallSite) -> float:
    """Return the mean number of bytes per call."""
    return sum(event.nbytes for event in site.events) / len(site.events) if site.events else 0.0


def source_text(line: Line | None, default: str) -> str:
    """Return the source text of a line, or `default` if the text was not recorded."""
    return line.text if line and line.text else default


def location(view: CaptureView, line: Line | None, default: str) -> str:
    """Return a short file name and line number, or `default` without a line."""
    return format_location(line, view.capture.script) if line else default


def batch_rows(*sites: CallSite) -> int | str:
    """Return the rows per batch at the first of these call sites that recorded them.

    If none did, return "batch_size", which the code of cures then uses as a variable.
    """
    return next((int(rows) for site in sites for rows in site.values("batch_rows") if rows), "batch_size")


def feed_code(view: CaptureView, framework: str, site: CallSite | None = None) -> str:
    """Return code for a feed that replaces the input of the script.

    The code is an edit of the script if one matches the excerpt, else an example. `site` is the call site that waits
    for the input or converts it.
    """
    if code := fit_feed(view, framework, site):
        return code
    return array_feed_code(view, framework)


def array_feed_code(view: CaptureView, framework: str) -> str:
    """Return example code for a feed of two arrays `x` and `y`."""
    rows = batch_rows(*view.sites_of(EventKind.INPUT))
    feed = f'fb.from_arrays((x, y)).shuffle(seed=0).batch({rows}).feed("{framework}")'
    usage = "model.fit(feed)" if framework == "keras" else _FEED_LOOP
    return f"import forebay as fb\nfeed = {feed}\n{usage}"


def feed_fits(view: CaptureView, framework: str, site: CallSite) -> bool:
    """Whether a rule should offer a feed as a cure of a call site.

    If the excerpt contains the line, the code must be an edit of the script, not an example.
    """
    return not has_excerpt(view, site.line) or bool(fit_feed(view, framework, site))


def keep_on_device_fits(view: CaptureView, site: CallSite) -> bool:
    """Whether a rule should offer to keep uploaded data on the device.

    If the excerpt contains the line, the code must be an edit of the script, not an example.
    """
    return not has_excerpt(view, site.line) or bool(fit_keep_on_device(view, site))


def keep_on_device_cure(view: CaptureView, site: CallSite) -> Cure:
    """Return the cure that uploads all data once and selects rows on the device."""
    upload = f'everything = fb.upload_once(array, to="{array_framework(view, site.api)}")   # before the loop'
    code = f"import forebay as fb\n{upload}\nbatch = everything[indices]   # in the loop: only the indices are uploaded"
    code = fit_keep_on_device(view, site) or code
    title = "if all data fits, keep it on the device"
    basis = "the device selects the rows, and the loop uploads only their indices"
    return Cure(title, code, basis, upload_cure_changes.keep_on_device(view, site))

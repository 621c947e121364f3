"""What titles, evidence and cures have in common: turns of speech, and code that feeds a framework ahead of time."""

from collections import Counter

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.framework import uploads_to
from forebay.doctor.model.events import Kind, Line
from forebay.doctor.model.formatting import near, percent
from forebay.doctor.predict import cure_changes
from forebay.doctor.rules.finding import Cure

__all__ = [
    "IN_A_GRAPH",
    "SESSION",
    "batch_rows",
    "calls",
    "each_nbytes",
    "feed_code",
    "keep_there",
    "most_of_one",
    "often",
    "place",
    "told",
]

SESSION = "Session.run"  # takes no tensors from outside of its graph, so what makes batches must be part of that
IN_A_GRAPH = (
    "iterator = tf.compat.v1.data.make_initializable_iterator(dataset)   # session.run(iterator.initializer) once\n"
    "x, y = iterator.get_next()   # in place of the placeholders"
)


def calls(site: Site) -> float:
    """How often a step does it, where several calls of one line are one doing."""
    most = max(Counter(event.api for event in site.events).values(), default=0)
    return most / site.steps if site.steps else 0.0


def often(site: Site) -> str:
    count = calls(site)
    if count >= 1.5:
        return f"{count:.0f} times a step"
    return "every step" if count >= 0.95 else f"in {percent(count)} of steps"


def most_of_one(site: Site) -> tuple[str, int]:
    """The function that most events tell of, and how many do: a line may make or compile several, once each."""
    names = Counter(str((event.detail or {}).get("function", "")) for event in site.events)
    return max(names.items(), key=lambda item: item[1], default=("", 0))


def each_nbytes(site: Site) -> float:
    """Bytes of one call, the mean."""
    return sum(event.nbytes for event in site.events) / len(site.events) if site.events else 0.0


def told(line: Line | None, otherwise: str) -> str:
    """The line's own text, to be shown where it should stand; something like it where that was left out."""
    return line.text if line and line.text else otherwise


def place(case: Case, line: Line | None, otherwise: str) -> str:
    """Where it stands, in few letters."""
    return near(line, case.capture.script) if line else otherwise


def batch_rows(*sites: Site) -> int:
    """Rows of the batches that the script waits for now, which a cure keeps; something usual where none is known."""
    return next((int(rows) for site in sites for rows in site.values("batch_rows") if rows), 256)


def feed_code(case: Case, framework: str) -> str:
    """A feed in place of whatever makes batches now."""
    rows = batch_rows(*case.of(Kind.INPUT))
    feed = f'fb.from_arrays((x, y)).shuffle(seed=0).batch({rows}).feed("{framework}")'
    then = "model.fit(feed)" if framework == "keras" else "for x, y in feed: ...   # batches wait there already"
    return f"import forebay as fb\nfeed = {feed}\n{then}"


def keep_there(case: Case, site: Site, cost: float) -> Cure:
    """All of the data uploaded once, and rows taken where they are wanted."""
    whole = f'everything = fb.upload_once(array, to="{uploads_to(case, site.api)}")   # in front of the loop'
    code = f"import forebay as fb\n{whole}\nbatch = everything[indices]   # in the loop: only indices cross"
    title = "if all of the data fits there, keep it on the device"
    how = "the upload falls away, and the making of the batch; taking rows on the device takes hardly any time"
    return Cure(title, code, cost / 2, cost, how, cure_changes.on_device(case, site))

"""A loop that Forebay feeds already: what is left to win there. Pure."""

from collections.abc import Iterator

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.predict.cure_changes import prefetched
from forebay.doctor.rules.finding import Cure
from forebay.doctor.rules.input_producers import Stage, cores_of, won_by_workers, workers_of
from forebay.doctor.rules.wording import batch_rows

__all__ = ["feed_cures"]


def feed_cures(case: Case, site: Site, wait: float, stage: Stage, framework: str) -> Iterator[Cure]:
    """Its map in processes, where it is not there yet; else more machines, or whatever the feed itself names."""
    if stage.name != "map" and not workers_of(site):
        how = "at most all of the wait: which of its stages takes it, the feed has measured"
        yield Cure("ask the feed which of its stages is slow", "print(feed.explain())", 0.0, wait, how)
        return
    where = "ray" if workers_of(site) else "process"
    code = f'feed = pipeline.batch({batch_rows(site)}).map(prepare, where="{where}").feed("{framework}")'
    if where == "ray":
        how = "at most all of the wait: its processes are busy, and other machines would have to help"
        yield Cure("run its map on more machines", code, 0.0, wait, how)
        return
    low, high = won_by_workers(case, site, wait)
    how = f"the map shared by {cores_of(case)} cores, beside the rest of the step; nothing where they are busy"
    yield Cure("run its map in processes", code, low, high, how, prefetched(case, site, wait / cores_of(case)))

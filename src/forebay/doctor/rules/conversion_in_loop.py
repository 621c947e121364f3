"""Fresh data of the host's made into tensors by the loop itself, step for step, while the device has nothing to do."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of, won_by_overlap
from forebay.doctor.analyse.framework import copies, feeds, is_python
from forebay.doctor.predict.changes import Change
from forebay.doctor.predict.cure_changes import ahead, converted_ahead, overlapped
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import IN_A_GRAPH, SESSION, each_nbytes, feed_code, keep_there, often

__all__ = ["examine", "recognises"]

LEAST_SHARE = 0.05  # of a step: where XProf begins to call a loop bound by its input
# An array's conversion is a copy: at best at a core's own speed, at worst as slowly as TensorFlow does it.
FASTEST_BYTES_PER_SECOND, SLOWEST_BYTES_PER_SECOND = 10e9, 1e9


def recognises(case: Case, site: Site) -> bool:
    flies = any(site.values("pinned")) and any(site.values("non_blocking"))
    made = site.in_loop and copies(site) and not flies
    return made and cost_of(case, site.events) >= LEAST_SHARE * case.step_seconds


def examine(case: Case) -> Iterator[Finding]:
    for site in charged(case, "conversion_in_loop"):
        cost = cost_of(case, site.events)
        what = "Python lists" if is_python(site) else "fresh host data"
        amount = format_nbytes(each_nbytes(site))
        yield Finding(
            rule="conversion_in_loop",
            title=f"{site.api} converts {amount} of {what} {often(site)}",
            line=site.line,
            seconds=cost,
            cures=(*_first(case, site, cost), _ahead(case, site, cost), *_feed(case, site, cost)),
            evidence=(f"{len(site.events)} conversions in {site.steps} steps, hardly any of the same data",),
        )


def _first(case: Case, site: Site, cost: float) -> Iterator[Cure]:
    """What is best done about it, where that can be done at all."""
    if not is_python(site):
        if case.device is not None and site.api != SESSION:
            yield keep_there(case, site, cost)
        return
    yield Cure(
        "keep numbers in arrays, not in Python lists",
        'rows = np.asarray(rows, dtype="float32")   # once, in front of the loop; the loop takes slices',
        low=max(0.0, cost - site.nbytes / SLOWEST_BYTES_PER_SECOND),
        high=max(0.0, cost - site.nbytes / FASTEST_BYTES_PER_SECOND),
        how="a copy of the same bytes in place of a number at a time; it needs data that is known before the loop",
    )


def _ahead(case: Case, site: Site, cost: float) -> Cure:
    low, high = won_by_overlap(case, cost)
    framework = feeds(case, site.api)
    return Cure(
        "convert the next batch while this one is computed",
        f"{_TF_DATA}\n{IN_A_GRAPH}" if site.api == SESSION else _AHEAD.get(framework, _AHEAD["jax"]),
        low,
        high,
        how="the conversion beside the rest of the step, which it can hide behind at most",
        changes=_changes(case, site, framework),
    )


def _changes(case: Case, site: Site, framework: str) -> tuple[Change, ...]:
    """Who has threads or processes of its own makes batches there; only those of PyTorch's lock their memory, so that
    it crosses meanwhile."""
    if framework in ("tensorflow", "keras"):
        return converted_ahead(case, site)
    return ahead(case, site) if framework == "torch" else overlapped(case, site.events[0].line)


def _feed(case: Case, site: Site, cost: float) -> Iterator[Cure]:
    if site.api == SESSION:
        return
    low, high = won_by_overlap(case, cost)
    yield Cure(
        "let a feed do it, without a copy in between",
        feed_code(case, feeds(case, site.api)),
        low,
        high,
        how="the conversion beside the rest of the step, which it can hide behind at most",
        changes=ahead(case, site),
    )


_TF_DATA = "dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(256).prefetch(tf.data.AUTOTUNE)"
_AHEAD = {
    "tensorflow": f"{_TF_DATA}\nfor x, y in dataset: ...",
    "keras": f"{_TF_DATA}\nmodel.fit(dataset)",
    "torch": "loader = DataLoader(dataset, batch_size=256, shuffle=True, num_workers=4, pin_memory=True)\n"
    "for x, y in loader:\n"
    "    x = x.to(device, non_blocking=True)",
    "jax": "coming = jax.device_put(batch(0))\n"
    "for step in range(steps):\n"
    "    current, coming = coming, jax.device_put(batch(step + 1))   # made ready while `current` is computed on\n"
    "    ...",
    "cupy": "with cupy.cuda.Stream(non_blocking=True):\n    coming = cupy.asarray(batch(step + 1))",
}

"""Forebay itself, through its public face alone."""

from collections.abc import Callable

import forebay as fb
from forebay.measure.bench.data import array, generator_rows, slow_python
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]

_DEVICE_OPTIONS = ("device", "resident", "device_bytes")


def epochs(work: Work) -> StartEpoch:
    pipeline = _PIPELINES[work.options.get("source", "arrays")](work)
    options = {name: work.options[name] for name in _DEVICE_OPTIONS if name in work.options}
    to, host_bytes = work.options.get("to", "numpy"), work.options.get("host_bytes", "256MiB")
    feed = pipeline.feed(to, host_bytes=host_bytes, **options)
    return lambda: feed  # every iter() of a feed is the next epoch


def _arrays(work: Work) -> fb.Pipeline:
    return fb.from_arrays(array(work)).shuffle(seed=0).batch(work.batch)


def _files(work: Work) -> fb.Pipeline:
    return fb.from_files(work.path).shuffle(seed=0).batch(work.batch)


def _generator(work: Work) -> fb.Pipeline:
    spec = fb.ArraySpec(work.shape, work.dtype)
    return fb.from_generator(lambda: generator_rows(work), spec=spec).batch(work.batch)


def _map(work: Work) -> fb.Pipeline:
    return _arrays(work).map(slow_python, where=work.options["where"])


_PIPELINES: dict[str, Callable[[Work], fb.Pipeline]] = {
    "arrays": _arrays,
    "files": _files,
    "generator": _generator,
    "map": _map,
}

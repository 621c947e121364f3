"""Forebay as a contender, used through its public API."""

from collections.abc import Callable
from time import perf_counter

import numpy as np

import forebay as fb
from forebay.feed.feed import Feed
from forebay.measure.bench.data import (
    MIX_WEIGHTS,
    TextSource,
    generate_rows,
    make_array,
    make_csr,
    make_frame,
    make_series,
    make_texts,
    make_weights,
    map_in_python,
)
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["disk_feed", "feed"]

_DEVICE_OPTIONS = ("device", "resident", "device_bytes")


def feed(work: Workload) -> StartEpoch:
    """Make a feed for the framework in the option "to". The option "source" names the source."""
    pipeline = _PIPELINES[work.options.get("source", "arrays")](work)
    options = {name: work.options[name] for name in _DEVICE_OPTIONS if name in work.options}
    to, host_bytes = work.options.get("to", "numpy"), work.options.get("host_bytes", "256MiB")
    running_feed = pipeline.shard(0, 1).feed(to, host_bytes=host_bytes, **options)
    return lambda: running_feed  # every iter() of a feed starts the next epoch


def disk_feed(work: Workload) -> Callable[[float], float]:
    """Measure a feed to NumPy that reads a file which is not in the page cache."""
    pipeline = fb.from_files(work.path).shuffle(seed=0, block=work.options.get("block")).batch(work.batch)
    feeds: list[Feed] = []  # at most one; it stays open until the next call, so that the meter counts its memory

    def measure(seconds: float) -> float:
        """Read the first epoch of a new feed for about `seconds`; return bytes per second."""
        while feeds:
            feeds.pop().close()
        start, nbytes = perf_counter(), 0
        feeds.append(pipeline.shard(0, 1).feed("numpy", host_bytes=work.options["host_bytes"]))
        for batch in feeds[0]:
            nbytes += batch.nbytes
            if perf_counter() >= start + seconds:
                break
        return nbytes / (perf_counter() - start)

    return measure


def _arrays(work: Workload) -> fb.Pipeline:
    return fb.from_arrays(make_array(work)).shuffle(seed=0).batch(work.batch)


def _files(work: Workload) -> fb.Pipeline:
    return fb.from_files(work.path).shuffle(seed=0).batch(work.batch)


def _generator(work: Workload) -> fb.Pipeline:
    spec = fb.ArraySpec(work.shape, work.dtype)
    return fb.from_generator(lambda: generate_rows(work), spec=spec).batch(work.batch)


def _selected(work: Workload) -> fb.Pipeline:
    return fb.from_arrays(make_array(work)).select(slice(0, None, 2)).shuffle(seed=0).batch(work.batch)


def _split(work: Workload) -> fb.Pipeline:
    half, _ = fb.from_arrays(make_array(work)).split(0.5, 0.5)
    return half.shuffle(seed=0).batch(work.batch)


def _sampled(work: Workload) -> fb.Pipeline:
    return fb.from_arrays(make_array(work)).sample(weights=make_weights(work)).batch(work.batch)


def _interleaved(work: Workload) -> fb.Pipeline:
    parts = [part.shuffle(seed=0) for part in _thirds(work)]
    return fb.interleave(*parts, weights=MIX_WEIGHTS, stop="all", seed=0).batch(work.batch)


def _concatenated(work: Workload) -> fb.Pipeline:
    return fb.concat(*_thirds(work)).shuffle(seed=0).batch(work.batch)


def _thirds(work: Workload) -> list[fb.Pipeline]:
    return [fb.from_arrays(rows) for rows in np.array_split(make_array(work), len(MIX_WEIGHTS))]


def _windows(work: Workload) -> fb.Pipeline:
    return fb.from_arrays(make_series(work)).window(work.shape[0]).shuffle(seed=0).batch(work.batch)


def _token_windows(work: Workload) -> fb.Pipeline:
    tokens, length = fb.from_files(work.path, spec="uint16"), work.shape[0] // 2  # two bytes per token
    return tokens.window(length, stride=length, horizon=1).shuffle(seed=0).batch(work.batch)


def _map(work: Workload) -> fb.Pipeline:
    return _arrays(work).map(map_in_python, where=work.options["where"])


def _image_folder(work: Workload) -> fb.Pipeline:
    return _images(work).shuffle(seed=0).batch(work.batch)


def _image_shards(work: Workload) -> fb.Pipeline:
    height, width, _ = work.shape
    shards = fb.from_images(f"{work.path}/*.tar", size=(height, width), column="jpg", label="cls")
    return shards.shuffle(seed=0).batch(work.batch)


def _frame(work: Workload) -> fb.Pipeline:
    frame = make_frame(work)
    return fb.from_frame(frame, columns={"x": list(frame.columns)}).shuffle(seed=0).batch(work.batch)


def _sparse(work: Workload) -> fb.Pipeline:
    return fb.from_arrays(make_csr(work)).shuffle(seed=0).batch(work.batch)


def _cached_images(work: Workload) -> fb.Pipeline:
    """Cache decoded images in RAM or in a folder.

    One epoch fills the cache before the measurement.
    """
    place = f"{work.path}/decoded" if work.options["cache"] == "disk" else "16GB"
    pipeline = _images(work).cache(place).shuffle(seed=0).batch(work.batch)
    with pipeline.feed("numpy") as filling_feed:
        for _ in filling_feed:
            pass
    return pipeline


def _decoded_images(work: Workload) -> fb.Pipeline:
    """Decode all images into arrays first. A cache should be as fast as these arrays."""
    with _images(work).batch(work.rows).feed("numpy", host_bytes="64GB") as decoding_feed:
        decoded = {name: leaf.copy() for name, leaf in next(decoding_feed).items()}
    return fb.from_arrays(decoded).shuffle(seed=0).batch(work.batch)


def _images(work: Workload) -> fb.Pipeline:
    (height, width, _), decoder = work.shape, work.options.get("decoder", "auto")
    files = f"{work.path}/*/*.jpg"
    if work.options.get("boxes"):
        boxes = fb.random_resized_crop((height, width))
        return fb.from_images(files, resize=boxes, seed=0, label="folder", decoder=decoder)
    return fb.from_images(files, size=(height, width), label="folder", decoder=decoder)


def _packed_texts(work: Workload) -> fb.Pipeline:
    texts = TextSource(work)
    return fb.from_ragged(texts.tokens, texts.offsets).pack(work.shape[0]).batch(work.batch)


def _texts(work: Workload) -> fb.Pipeline:
    return fb.from_arrays(make_texts(work)).shuffle(seed=0).batch(tokens=work.options["tokens"], pad=0)


_PIPELINES: dict[str, Callable[[Workload], fb.Pipeline]] = {
    "arrays": _arrays,
    "files": _files,
    "generator": _generator,
    "map": _map,
    "selected": _selected,
    "split": _split,
    "sampled": _sampled,
    "interleaved": _interleaved,
    "concatenated": _concatenated,
    "windows": _windows,
    "token_windows": _token_windows,
    "image_folder": _image_folder,
    "image_shards": _image_shards,
    "frame": _frame,
    "sparse": _sparse,
    "packed_texts": _packed_texts,
    "cached_images": _cached_images,
    "decoded_images": _decoded_images,
    "texts": _texts,
}

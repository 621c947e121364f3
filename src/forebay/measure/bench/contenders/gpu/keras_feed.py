"""Forebay inside Keras's `fit`, through its public face alone."""

import forebay as fb
from forebay.measure.bench.contenders.gpu.labelled import images_and_labels
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    options = {"resident": work.options["resident"]} if "resident" in work.options else {}
    pipeline = fb.from_arrays(images_and_labels(work)).shuffle(seed=0).batch(work.batch)
    feed = pipeline.feed("keras", device="cuda", **options)
    return lambda: feed

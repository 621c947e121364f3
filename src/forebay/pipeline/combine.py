"""The functions that combine pipelines: `concat`, `interleave`, `zip_rows`."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from numbers import Real
from typing import Any

from forebay.core.source import AbstractSource
from forebay.core.spec import Structure
from forebay.errors import PipelineError, SpecError
from forebay.order.combined import Concatenated, Interleaved, OrderPart, Stop, all_orders, has_windows
from forebay.order.epoch_views import EpochViews
from forebay.order.mix_pattern import MAX_PERIOD, integer_weights
from forebay.order.orders import Order, Sequential
from forebay.pipeline.argument_checks import check_count, check_number
from forebay.pipeline.description import IndexFolder
from forebay.pipeline.familiar_words import accept_familiar_arguments
from forebay.pipeline.pipeline import Pipeline
from forebay.sources.combined import JoinedSource, ZippedSource
from forebay.sources.streams.batches import BatchStream

__all__ = ["concat", "interleave", "zip_rows"]


@accept_familiar_arguments
def concat(*pipelines: Pipeline) -> Pipeline:
    """Feed the rows of the first pipeline, then those of the second, and so on.

    Call `shuffle()` after `concat()` to mix the rows of all pipelines. No row is copied.

    Args:
        *pipelines: Pipelines with the same fields, shapes and dtypes. Each pipeline keeps its own `shuffle()`, `take()`
            and `repeat()`.

    Examples:
        >>> import numpy as np, forebay as fb
        >>> both = fb.concat(fb.from_arrays(np.arange(3)), fb.from_arrays(np.arange(10, 12)))
        >>> [batch.tolist() for batch in both.batch(4).feed("numpy")]
        [[0, 1, 2, 10], [11]]
    """
    orders = _check_pipelines(pipelines, "concat")
    for number, order in enumerate(orders[:-1], 1):
        if order.length is None:
            raise PipelineError(
                f"concat(): pipeline {number} never ends, because its repeat() has no count, so no row of pipeline "
                f"{number + 1} would come. Pass a count to this repeat()."
            )
    _check_equal_rows(pipelines, "concat")
    if len(pipelines) == 1:
        return pipelines[0]
    return _join(pipelines, Concatenated.of, seed=pipelines[0].seed)


@accept_familiar_arguments
def interleave(
    *pipelines: Pipeline,
    weights: Sequence[float] | None = None,
    stop: Stop = "first",
    seed: int | None = None,
) -> Pipeline:
    """Mix the rows of several pipelines in fixed proportions. No row is copied.

    Args:
        *pipelines: Pipelines with the same fields, shapes and dtypes. Each pipeline keeps its own `shuffle()`, `take()`
            and `repeat()`. Use different seeds for pipelines of equal length, because equal seeds give equal shuffles.
        weights: The share of each pipeline; equal shares by default. With `weights=(7, 3)`, every ten rows have seven
            rows of pipeline 1 and three of pipeline 2, spread evenly. Forebay converts weights to whole numbers with a
            sum of at most 10,000: 0.7 and 0.3 become 7 and 3.
        stop: When an epoch ends. `"first"`: as soon as any pipeline has no row left for its next turn. `"all"`: after
            every row of every pipeline was delivered; shorter pipelines start again, with a new shuffle. A number:
            after this many rows; pipelines start again if necessary.
        seed: With a seed, the pipelines take turns in a random order, which is different in each epoch. Every ten rows
            (with the weights above) still have seven rows of pipeline 1 and three of pipeline 2.

    Examples:
        >>> import numpy as np, forebay as fb
        >>> old, new = fb.from_arrays(np.arange(20)), fb.from_arrays(np.arange(100, 120))
        >>> next(fb.interleave(old, new, weights=(3, 1)).batch(8).feed("numpy")).tolist()
        [0, 1, 100, 2, 101, 3, 4, 5]
    """
    orders = _check_pipelines(pipelines, "interleave")
    _check_equal_rows(pipelines, "interleave")
    numbers = integer_weights(_check_weights(weights, len(pipelines)))
    seed = None if seed is None else check_number(seed, "interleave(seed={})")
    stop = _check_stop(stop, orders)
    map_seed = pipelines[0].seed if seed is None else seed
    return _join(pipelines, lambda parts: Interleaved.of(parts, numbers, stop, seed), seed=map_seed)


@accept_familiar_arguments
def zip_rows(*pipelines: Pipeline) -> Pipeline:
    """Combine row i of all pipelines into one row.

    If all rows are dicts, the new row is one dict with the fields of all of them. Otherwise it is a tuple with one item
    for each pipeline.

    Args:
        *pipelines: Pipelines with the same number of rows, in the same order: call `shuffle()` after `zip_rows()`.

    Examples:
        >>> import numpy as np, forebay as fb
        >>> images, labels = fb.from_arrays({"x": np.arange(4) * 10}), fb.from_arrays({"y": np.arange(4)})
        >>> batch = next(fb.zip_rows(images, labels).batch(4).feed("numpy"))
        >>> batch["x"].tolist(), batch["y"].tolist()
        ([0, 10, 20, 30], [0, 1, 2, 3])
    """
    orders = _check_pipelines(pipelines, "zip_rows")
    order = _common_order(orders)
    structure = _zip_structures([pipeline.structure for pipeline in pipelines])
    if len(pipelines) == 1:
        return pipelines[0]
    folder = _join_folders(pipelines)
    return Pipeline(ZippedSource(_sources_of(pipelines), structure), order, seed=pipelines[0].seed, index_folder=folder)


def _check_pipelines(pipelines: Sequence[Any], function: str) -> list[Order]:
    """Return the order of each pipeline. Raise PipelineError if a pipeline cannot be combined."""
    if not pipelines:
        raise PipelineError(f"{function}() got no pipeline. Pass two or more, as in {function}(a, b).")
    numbered = enumerate(pipelines, 1)
    return [_check_pipeline(pipeline, f"{function}(): pipeline {number}", function) for number, pipeline in numbered]


def _check_pipeline(pipeline: Any, name: str, function: str) -> Order:
    if not isinstance(pipeline, Pipeline):
        hint = f" Remove the brackets: {function}(*pipelines)." if isinstance(pipeline, list | tuple) else ""
        raise PipelineError(f"{name} is a {type(pipeline).__name__}. Pass pipelines, such as from_arrays(x).{hint}")
    if isinstance(pipeline.source, BatchStream):
        raise PipelineError(f"{name} has ready-made batches, not rows. Combine the rows in the loader that makes them.")
    if pipeline.order is None:
        raise PipelineError(
            f"{name} is a stream, and its rows cannot be found by their position, so a run could not resume. Combine "
            "the rows inside the generator, or write them to files and use from_files()."
        )
    if pipeline.transforms:
        raise PipelineError(f"{name} has {pipeline.transforms[0]}. Call map() after {function}().")
    if pipeline.batching is not None:
        raise PipelineError(f"{name} has batch({pipeline.batching.rows}). Call batch() after {function}().")
    if pipeline.shard_count > 1 or pipeline.rank is not None:
        raise PipelineError(f"{name} is sharded. Call shard() after {function}().")
    return pipeline.order


def _check_equal_rows(pipelines: Sequence[Pipeline], function: str) -> None:
    """Raise SpecError unless all pipelines have equal fields, shapes, dtypes and class names."""
    first = pipelines[0]
    for number, other in enumerate(pipelines[1:], 2):
        if other.class_names != first.class_names:
            raise SpecError(
                f"{function}() needs the same class for each label number, but pipeline 1 has the classes "
                f"{list(first.class_names)[:5]} and pipeline {number} has {list(other.class_names)[:5]}. Pass the same "
                "class_names= to both from_images(), or give both columns the same categories."
            )
        if other.structure != first.structure:
            fields, other_fields = (", ".join(pipeline.structure.paths) for pipeline in (first, other))
            raise SpecError(
                f"{function}() needs rows with the same fields in the same order, but pipeline 1 has {fields} "
                f"({_kind_of(first.structure)}) and pipeline {number} has {other_fields} "
                f"({_kind_of(other.structure)}). Build both from trees of the same form."
            )
        for name, spec, other_spec in zip(first.structure.paths, first.specs, other.specs, strict=True):
            if spec != other_spec:
                raise SpecError(
                    f"{function}() needs rows of one shape and dtype, but {name!r} is {spec} in pipeline 1 and "
                    f"{other_spec} in pipeline {number}. Give both the same shape and dtype first, for "
                    f"example with array.astype({str(spec.dtype)!r}); cast() works only after {function}()."
                )


def _kind_of(structure: Structure) -> str:
    return "a single array" if structure.kind is None else structure.kind.__name__


def _check_weights(weights: Any, count: int) -> list[float]:
    """Return one positive weight for each pipeline, or raise PipelineError."""
    if count > MAX_PERIOD:
        raise PipelineError(f"interleave() got {count} pipelines. Combine at most {MAX_PERIOD}.")
    if weights is None:
        return [1] * count
    try:
        given = list(weights)
    except TypeError:
        given = [weights]
    if len(given) != count:
        raise PipelineError(f"interleave(weights={weights!r}) for {count} pipelines: pass one weight for each.")
    for weight in given:
        if isinstance(weight, bool) or not isinstance(weight, Real) or not _is_finite(weight) or weight <= 0:
            raise PipelineError(f"interleave(weights={weights!r}): pass numbers above 0, such as (7, 3).")
    return [weight if isinstance(weight, int) else float(weight) for weight in given]


def _is_finite(weight: Real) -> bool:
    try:
        return math.isfinite(weight)
    except OverflowError:  # an integer that no float can hold
        return False


def _check_stop(stop: Any, orders: Sequence[Order]) -> Stop:
    if not isinstance(stop, str):
        return check_count(stop, "interleave(stop={})")
    if stop not in ("first", "all"):
        raise PipelineError(f"interleave(stop={stop!r}) is unknown: choose 'first', 'all' or a number of rows.")
    endless = [number for number, order in enumerate(orders, 1) if order.length is None]
    if stop == "all" and endless:
        raise PipelineError(
            f"interleave(stop='all') would never end, because pipeline {endless[0]} repeats without a count. Leave "
            "out this repeat(): with stop='all', short pipelines start again by themselves."
        )
    return "first" if stop == "first" else "all"


def _common_order(orders: Sequence[Order]) -> Order:
    """Return the order that all pipelines have, or raise PipelineError if their orders differ."""
    lengths = [order.length for order in orders]
    if len(set(lengths)) > 1:
        listed = ", ".join(f"pipeline {number} has {length}" for number, length in enumerate(lengths, 1))
        raise PipelineError(
            f"zip_rows() needs the same number of rows in all pipelines: {listed.replace('None', 'endless rows')}. "
            "Use take() to make them equal."
        )
    if all(order == orders[0] for order in orders):
        return orders[0]
    if all(order.is_sequential and not has_windows(order) for order in orders) and lengths[0] is not None:
        return Sequential(lengths[0])
    for number, order in enumerate(orders[1:], 2):
        if _views_in(order) != _views_in(orders[0]):
            raise PipelineError(
                f"zip_rows() cannot join pipeline 1 and pipeline {number}: from_images() crops only one of them at "
                "random, or crops them with different seeds, or opens different numbers of images. Pass the same "
                "resize= and seed= to both, or pass labels as label=."
            )
        if order != orders[0]:
            raise PipelineError(
                f"zip_rows() got pipeline 1 and pipeline {number} in different orders ({orders[0].describe()[0]}, "
                f"{order.describe()[0]}), so their rows would not belong together. Call zip_rows() before methods that "
                "choose, window or shuffle rows."
            )
    return orders[0]


def _views_in(order: Order) -> set[EpochViews]:
    """Return the orders of randomly cropped images that an order contains."""
    return {link for link in all_orders(order) if isinstance(link, EpochViews)}


def _zip_structures(structures: Sequence[Structure]) -> Structure:
    """Return the structure of the combined row: one merged dict, or a tuple."""
    if not all(structure.kind is dict for structure in structures):
        return Structure(tuple, tuple(range(len(structures))), tuple(structures))
    keys = [key for structure in structures for key in structure.keys]
    for key in keys:
        if keys.count(key) > 1:
            raise PipelineError(
                f"zip_rows() got two fields that are both named {key!r}. Rename one of them: "
                f"zip_rows(first, second.rename({{{key!r}: {'other_' + str(key)!r}}}))."
            )
    return Structure(dict, tuple(keys), tuple(child for structure in structures for child in structure.children))


def _join(pipelines: Sequence[Pipeline], make_order: Callable[[Sequence[OrderPart]], Order], *, seed: int) -> Pipeline:
    """Return a pipeline over the sources of all pipelines.

    `make_order` combines their orders. If several pipelines use one source, the joined source contains it only once.
    """
    sources = {id(source): source for source in _sources_of(pipelines)}
    starts = accumulate(map(len, sources.values()), initial=0)
    first_rows = dict(zip(sources, starts, strict=False))
    parts = [
        OrderPart(pipeline.order, first_rows[id(pipeline.source)])
        for pipeline in pipelines
        if pipeline.order is not None
    ]
    order, folder = make_order(parts), _join_folders(pipelines)
    if len(sources) == 1:
        recipe = pipelines[0].file_recipe
        return Pipeline(pipelines[0].source, order, seed=seed, file_recipe=recipe, index_folder=folder)
    return Pipeline(JoinedSource(list(sources.values())), order, seed=seed, index_folder=folder)


def _join_folders(pipelines: Sequence[Pipeline]) -> IndexFolder | None:
    """Return the index folder that all pipelines share, with the decisions of every pipeline.

    Return None if the folders differ, or if a pipeline has none.
    """
    folders = [pipeline.index_folder for pipeline in pipelines]
    if folders[0] is None or any(folder != folders[0] for folder in folders):
        return None
    return replace(folders[0], decisions=tuple(chain.from_iterable(f.decisions for f in folders if f is not None)))


def _sources_of(pipelines: Sequence[Pipeline]) -> list[AbstractSource]:
    return [pipeline.source for pipeline in pipelines if isinstance(pipeline.source, AbstractSource)]

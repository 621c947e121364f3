"""The decision about the order of rows, which `explain()` prints first."""

from collections.abc import Iterable, Iterator, Sequence

from forebay.core.decision import Decision
from forebay.core.source import AbstractSource, AbstractStream
from forebay.core.spec import format_nbytes
from forebay.order.choices import Selected, Span, SplitPart
from forebay.order.combined import Concatenated, Interleaved, OrderPart, all_orders
from forebay.order.epoch_views import EpochViews
from forebay.order.length_buckets import BucketedBatches
from forebay.order.orders import BlockShuffled, Order, Repeated, Shuffled, Take, order_chain
from forebay.order.packing import Packed
from forebay.order.sampling import Sampled
from forebay.pipeline.description import PipelineDescription
from forebay.sources.streams.choices import FilteredStream, SkippedStream
from forebay.sources.streams.combinators import ShuffledStream

__all__ = ["order_decision"]


def order_decision(pipeline: PipelineDescription) -> Decision:
    """Return the decision: the kind of the order, and how it arranges rows."""
    if pipeline.order is None:
        return _stream_decision(pipeline)
    choice = "natural" if isinstance(pipeline.order, EpochViews) else pipeline.order.describe()[0]
    return Decision("order", choice, "; ".join(_notes(pipeline, pipeline.order, _pass_notes(pipeline.order))))


def _stream_decision(pipeline: PipelineDescription) -> Decision:
    stream, choice, notes = pipeline.source, "sequential", ["a stream cannot be indexed"]
    while isinstance(stream, AbstractStream):
        if isinstance(stream, ShuffledStream):
            choice = "window"
            notes[0] = f"a stream cannot be indexed: rows are mixed in a window of {stream.window_rows} rows"
        elif isinstance(stream, SkippedStream):
            notes.append(f"the first {stream.count} rows are read and left out")
        elif isinstance(stream, FilteredStream):
            notes.append(f"{stream.row_filter} runs while the stream is read")
        if stream.inner is None:
            break
        stream = stream.inner
    return Decision("order", choice, "; ".join(notes))


def _notes(pipeline: PipelineDescription, order: Order, pass_notes: Iterable[str] = ()) -> Iterator[str]:
    """Yield notes about an order.

    They say how the order arranges rows and which rows it chooses. `pass_notes` and the orders of its parts follow.
    """
    yield _why_order(pipeline, order)
    yield from _choice_notes(pipeline, order)
    yield from pass_notes
    arrangement = _arrangement(order)
    if isinstance(arrangement, Concatenated | Interleaved):  # last, so that no other note seems to be about a part
        yield _why_parts(pipeline, arrangement.parts)


def _why_order(pipeline: PipelineDescription, order: Order) -> str:
    """Return a clause that says how the order arranges rows.

    The clause ignores the parts of the order, `take`, `skip` and `repeat`.
    """
    order = _arrangement(order)
    if isinstance(order, BucketedBatches):
        return _why_bucketed(pipeline, order)
    if isinstance(order, Shuffled):
        return "any row may come anywhere: an exact shuffle"
    if isinstance(order, Sampled):
        return _why_sampled(order)
    if isinstance(order, SplitPart):
        return "a random order that is the same in every epoch"
    if isinstance(order, Concatenated):
        return f"{len(order.parts)} pipelines, one after the other"
    if isinstance(order, Interleaved):
        mixed = f"{len(order.parts)} pipelines, mixed {':'.join(map(str, order.weights))}"
        return f"{mixed}{'' if order.seed is None else ' in random turns'}{_why_stop(order)}"
    if isinstance(order, Packed):
        return "packed rows, approximately in the order of their texts"
    if not isinstance(order, BlockShuffled):
        return "the order of the source" if order.is_ascending else "the order of the selected row numbers"
    open_nbytes = order.open_blocks * order.block_rows * sum(spec.nbytes for spec in pipeline.specs)
    return (
        f"blocks come in random order, and the rows of {order.open_blocks} blocks ({format_nbytes(open_nbytes)}) are "
        f"mixed at a time: rows of one block stay within {order.max_row_distance} positions of each other"
    )


def _arrangement(order: Order) -> Order:
    while isinstance(order, Take | Repeated | Span):
        order = order.inner
    return order


def _why_sampled(order: Sampled) -> str:
    drawn = f"{order.count} rows are drawn by weight from {order.inner.length} in each epoch"
    if order.replacement:
        return f"{drawn}, with replacement: each draw reads one entry of a table"
    return f"{drawn}, without replacement: each row gets a random sort key, and these keys are sorted once per epoch"


def _why_bucketed(pipeline: PipelineDescription, order: BucketedBatches) -> str:
    buckets, shuffle = order.buckets, order.shuffle
    batches = "1 batch" if buckets.batches == 1 else f"{buckets.batches} batches"
    groups = "1 bucket" if buckets.count == 1 else f"{buckets.count} buckets"
    sizes = f"{batches} of at most {buckets.tokens} elements, from {groups} of rows of similar length"
    rows = f"{sizes}, so that padding is at most {buckets.padded_share:.1%}"
    if shuffle is None:
        return f"{rows}; batches come in the order in which their last rows come"
    if isinstance(shuffle, Shuffled):
        return f"{rows}; the rows of a bucket and the batches are shuffled in each epoch"
    why = _why_order(pipeline, shuffle)
    return f"{rows}; a batch comes as soon as it is full, and its rows come from a block shuffle: {why}"


def _why_stop(order: Interleaved) -> str:
    match order.stop:
        case "first":
            return ", until one of them has no row left"
        case "all":
            return ", until all rows have come; shorter pipelines start again"
    return f", {order.stop} rows per epoch"


def _why_parts(pipeline: PipelineDescription, parts: Sequence[OrderPart]) -> str:
    """Return how the orders of the parts arrange rows; list equal parts together."""
    numbers: dict[str, list[str]] = {}
    for number, part in enumerate(parts, 1):
        numbers.setdefault("; ".join(_notes(pipeline, part.order)), []).append(str(number))
    if len(numbers) == 1:
        return f"in each of them: {next(iter(numbers))}"
    return "; ".join(f"in pipeline {' and '.join(listed)}: {why}" for why, listed in numbers.items())


def _choice_notes(pipeline: PipelineDescription, order: Order) -> Iterator[str]:
    """Yield a note for each order that selects, splits, packs or draws rows."""
    arrangement = _arrangement(order)  # needs no note, because `_why_order` describes it
    for link in order_chain(order):
        if isinstance(link, Selected):
            yield f"{link.length} of {link.inner.length} rows were selected"
        elif isinstance(link, Span):
            yield f"from row {link.start} on" if link.count is None else f"{link.count} rows from row {link.start} on"
        elif isinstance(link, Take):
            yield f"the first {link.count} rows"
        elif isinstance(link, SplitPart):
            yield f"{link.count} of {link.inner.length} rows, split at random{_scatter_note(pipeline)}"
        elif isinstance(link, Packed):
            yield (
                f"{link.inner.length} texts packed into {link.length} rows of {link.row_length} tokens, "
                f"{link.fill:.1%} full; the table of the packing takes {format_nbytes(link.table.nbytes)}"
            )
        elif isinstance(link, Sampled) and link is not arrangement:
            yield _why_sampled(link)


def _pass_notes(order: Order) -> Iterator[str]:
    """Yield notes about passes of `repeat()` and about random crops in each pass."""
    if isinstance(order, Repeated) and order.count != 1:
        yield "passes without end" if order.count is None else f"{order.count} passes over the rows"
    seeds = {link.seed for link in all_orders(order) if isinstance(link, EpochViews)}
    if seeds:
        listed = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, sorted(seeds)))}"
        yield f"each pass crops other random boxes of the images ({listed})"


def _scatter_note(pipeline: PipelineDescription) -> str:
    source = pipeline.source
    if not isinstance(source, AbstractSource) or source.shuffle_blocks is None:
        return ""
    return (
        "; they are scattered over all chunks of the files, so reads are slow; to keep consecutive rows together, use "
        "split(..., seed=None), or split(by=...) with the same label for all rows of a chunk"
    )

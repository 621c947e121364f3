"""Long kernels of a few blocks: one step after the other on a device that could do hundreds at once."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.device_time import (
    COLLECTIVE,
    blocks_of,
    line_of,
    most_of,
    named,
    seconds_of,
    when,
    won_on_device,
)
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.device_records import RecordKind
from forebay.doctor.model.events import Kind
from forebay.doctor.model.formatting import at_most, counted, percent, seconds
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["examine"]

MOST_BLOCKS = 16  # no GPU in use for training has fewer multiprocessors than twice as many
LEAST_SHARE = 0.2  # of a step
SHORTEST_NS = 20_000  # a shorter kernel is over before it would matter: then it is launches that take the time
HOW = "nothing to all but a sixteenth of it, if the work of these kernels can be done side by side"


def examine(case: Case) -> Iterator[Finding]:
    view = case.device
    if view is None or not case.step_seconds:
        return
    few = _few_blocks(view)
    alone = when(view, few).without(when(view, view.are_kernels & ~few))
    cost = min(seconds_of(view, alone), case.step_seconds)
    if cost >= LEAST_SHARE * case.step_seconds:
        yield _finding(case, view, few, cost)


def _few_blocks(view: DeviceView) -> Any:
    """Graphs say nothing of their blocks; collectives need few."""
    operations = view.operations
    lasted = operations["end"].astype(np.int64) - operations["start"].astype(np.int64)
    kernels = np.isin(operations["kind"], (RecordKind.KERNEL, RecordKind.CONCURRENT_KERNEL))
    blocks = blocks_of(operations)
    few = kernels & (blocks > 0) & (blocks <= MOST_BLOCKS) & (lasted >= SHORTEST_NS)
    return few & ~named(view, COLLECTIVE.search)


def _finding(case: Case, view: DeviceView, few: Any, cost: float) -> Finding:
    blocks = blocks_of(view.operations[few])
    share = percent(cost / case.step_seconds)
    api = next((site.api for site in case.of(Kind.RUN, Kind.OPS, Kind.UPLOAD)), "")
    code = _CODE.get(framework_of(case, api), _CODE["torch"])
    low, high = won_on_device(case, view, 0.0, cost * (1 - 1 / MOST_BLOCKS))
    return Finding(
        rule="low_occupancy",
        title=f"Kernels of {counted(int(np.median(blocks)), 'block')} leave most of the device idle {share} of a step",
        line=line_of(case, view, few),
        seconds=cost,
        cures=(Cure("do the steps side by side", code, low, high, HOW),),
        evidence=(
            f"{seconds(cost)} a step with nothing beside them, mostly {at_most(most_of(view, few), 60)}",
            f"{len(blocks) / view.done:.0f} such kernels a step; a GPU runs a hundred blocks and more at once",
        ),
    )


_CODE = {
    "torch": "y = layer(x)   # all time steps in one call: nn.LSTM, cumsum, torch.vmap; or more rows at a time",
    "tensorflow": "y = tf.vectorized_map(one, x)   # or keras.layers.LSTM over the whole sequence; or more rows",
    "jax": "y = jax.lax.associative_scan(combine, x)   # not lax.scan or fori_loop, where the order does not matter; "
    "jax.vmap for more rows",
    "cupy": "kernel((blocks,), (256,), ...)   # at least as many blocks as the device has multiprocessors",
}

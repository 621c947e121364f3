"""The rule for long kernels with few blocks, which leave most multiprocessors idle."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_time import (
    COLLECTIVE,
    count_blocks,
    main_kernel,
    main_line,
    mask_kernels_named,
    seconds_per_step,
)
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.framework import step_framework
from forebay.doctor.model.device_records import RecordKind
from forebay.doctor.model.formatting import format_count, format_percent, format_seconds, truncate
from forebay.doctor.predict.cure_changes import shrink_kernels
from forebay.doctor.predict.timeline import DeviceOperation
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["examine"]

MAX_BLOCKS = 16  # blocks per kernel; half the number of multiprocessors of the smallest training GPU
MIN_REPORTED_SHARE = 0.2  # share of a step in which only such kernels run
MIN_NS = 20_000  # nanoseconds; for shorter kernels, the launch matters more than the number of blocks
BASIS = "the cure saves at most 15/16 of the time of these kernels, and nothing if their work cannot run in parallel"


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield a finding if only kernels with few blocks run for much of a step."""
    device_view = view.device
    if device_view is None or not view.step_seconds:
        return
    few_blocks_mask = _mask_few_blocks(device_view)
    others = device_view.intervals_of(device_view.is_kernel & ~few_blocks_mask)
    only_few_blocks = device_view.intervals_of(few_blocks_mask).difference(others)
    cost = min(seconds_per_step(device_view, only_few_blocks), view.step_seconds)
    if cost >= MIN_REPORTED_SHARE * view.step_seconds:
        yield _finding(view, device_view, few_blocks_mask, cost)


def _mask_few_blocks(device_view: DeviceView) -> Any:
    """Return a mask of the long kernels with few blocks.

    The mask excludes CUDA graphs, whose records have no block count, and collectives, which need few blocks.
    """
    operations = device_view.operations
    durations = operations["end"].astype(np.int64) - operations["start"].astype(np.int64)
    is_kernel = np.isin(operations["kind"], (RecordKind.KERNEL, RecordKind.CONCURRENT_KERNEL))
    blocks = count_blocks(operations)
    few_blocks_mask = is_kernel & (blocks > 0) & (blocks <= MAX_BLOCKS) & (durations >= MIN_NS)
    return few_blocks_mask & ~mask_kernels_named(device_view, COLLECTIVE.search)


def _finding(view: CaptureView, device_view: DeviceView, few_blocks_mask: Any, cost: float) -> Finding:
    """Build the finding; `few_blocks_mask` is the mask of the long kernels with few blocks."""
    blocks = count_blocks(device_view.operations[few_blocks_mask])
    share = format_percent(cost / view.step_seconds)
    code = _CODE.get(step_framework(view), _CODE["torch"])
    # At best, MAX_BLOCKS times as many blocks share the work of a kernel. At worst, the kernel takes as long as now.
    changes = shrink_kernels(_has_few_blocks, least_share=1 / MAX_BLOCKS, most_share=1.0)
    return Finding(
        rule="low_occupancy",
        title=f"Kernels of {format_count(int(np.median(blocks)), 'block')} leave "
        f"most of the device idle for {share} of a step",
        line=main_line(view, device_view, few_blocks_mask),
        seconds=cost,
        cures=(Cure("run the work in parallel", code, BASIS, changes),),
        evidence=(
            f"The device runs only such kernels for {format_seconds(cost)} per step, mostly "
            f"{truncate(main_kernel(device_view, few_blocks_mask), 60)}.",
            f"{len(blocks) / device_view.steps_done:.0f} such kernels run per step. A "
            "GPU runs a hundred blocks or more at once.",
        ),
    )


def _has_few_blocks(operation: DeviceOperation) -> bool:
    """Whether `_mask_few_blocks` contains this operation of a timeline."""
    is_long = operation.seconds * 1e9 >= MIN_NS
    return is_long and 0 < operation.blocks <= MAX_BLOCKS and not COLLECTIVE.search(operation.name)


_CODE = {
    "torch": "y = layer(x)   # all time steps in one call: nn.LSTM, cumsum, torch.vmap; or more rows per call",
    "tensorflow": "y = tf.vectorized_map(process_row, x)   # or keras.layers.LSTM on the whole sequence, or more rows",
    "jax": "y = jax.lax.associative_scan(combine, x)   # replaces lax.scan or fori_loop if `combine` is associative; "
    "jax.vmap for more rows",
    "cupy": "kernel((blocks,), (256,), ...)   # at least as many blocks as the device has multiprocessors",
}

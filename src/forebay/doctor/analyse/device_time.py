"""Time and source line of selected device operations. A mask selects operations of a `DeviceView`."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.events import Line

__all__ = [
    "COLLECTIVE",
    "count_blocks",
    "main_line",
    "mask_kernels_named",
    "main_kernel",
    "seconds_per_step",
    "count_threads",
]

COLLECTIVE = re.compile(r"^nccl", re.IGNORECASE)  # kernels in which several devices communicate


def mask_kernels_named(device_view: DeviceView, matches: Callable[[str], object]) -> Any:
    """Return a mask of the kernels for whose name `matches` returns a true value."""
    name_indices = [index for index, name in enumerate(device_view.names) if name and matches(name)]
    return device_view.is_kernel & np.isin(device_view.operations["name"], name_indices)


def seconds_per_step(device_view: DeviceView, times: Intervals) -> float:
    """Return the total length of the intervals in seconds, per step that the device executed.

    If the loop ran ahead, the device executed fewer steps than CUPTI recorded.
    """
    return times.length / 1e9 / device_view.steps_done


def main_line(view: CaptureView, device_view: DeviceView, mask: Any) -> Line | None:
    """Return the line whose operations in the mask take most time; None if unknown."""
    line_index = _longest_label(device_view, device_view.lines, mask)
    return None if line_index is None else view.line(line_index)


def main_kernel(device_view: DeviceView, mask: Any) -> str:
    """Return the name of the kernels in the mask that take most time, or ""."""
    name_index = _longest_label(device_view, device_view.operations["name"].astype(np.int64), mask)
    return device_view.names[name_index] if name_index is not None else ""


def count_blocks(operations: Any) -> Any:
    """Return the number of thread blocks of each kernel."""
    return operations["grid"].astype(np.int64).prod(axis=-1)


def count_threads(operations: Any) -> Any:
    """Return the number of threads of each kernel."""
    return count_blocks(operations) * operations["block"].astype(np.int64).prod(axis=1)


def _longest_label(device_view: DeviceView, labels: Any, mask: Any) -> int | None:
    """Return the label of the operations in the mask that take most time.

    Return None if the mask is empty. `labels` has one integer per operation.
    """
    selected = device_view.operations[mask]
    if not len(selected):
        return None
    unique_labels, label_indices = np.unique(labels[mask], return_inverse=True)
    durations = selected["end"].astype(np.int64) - selected["start"].astype(np.int64)
    return int(unique_labels[np.argmax(np.bincount(label_indices, weights=durations))])

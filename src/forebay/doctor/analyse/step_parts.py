"""The parts of a step from device records: device work and causes of idle time.

The recorded steps determine the shares of the parts. The parts add up to the time of an unprofiled step. CUPTI adds
some microseconds of host time per launch and no device time. So `split_recorded_step` subtracts the extra time of a
recorded step from the parts of the host, first from launching and Python.
"""

from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.idle_time import CAUSES, IDLE, LAUNCHING, PYTHON

__all__ = ["COMPUTING", "DEVICE_PARTS", "TRANSFER_DIRECTIONS", "split_recorded_step"]

COMPUTING = "computing"
DEVICE_PARTS = (*CAUSES, LAUNCHING, COMPUTING, PYTHON, IDLE)
TRANSFER_DIRECTIONS = ("host to device", "device to host")  # each direction is also the name of a part
# Parts that recording makes longer, in the order in which `split_recorded_step` shortens them.
_RECORDING_COSTS = ((LAUNCHING, PYTHON), tuple(CAUSES))


def split_recorded_step(device_view: DeviceView, step_seconds: float) -> dict[str, float]:
    """Return the seconds of each part of a step; the parts add up to `step_seconds`."""
    device_seconds, idle_seconds = _device_seconds(device_view), _idle_seconds(device_view)
    excess = device_view.seconds - step_seconds
    for names in _RECORDING_COSTS:
        excess -= _shorten(idle_seconds, names, excess)
    parts = {name: idle_seconds[name] + device_seconds.get(name, 0.0) for name in DEVICE_PARTS}
    total = sum(parts.values())
    return {name: value * step_seconds / total for name, value in parts.items()} if total else parts


def _device_seconds(device_view: DeviceView) -> dict[str, float]:
    """Return the seconds per step of computation and of transfers in each direction.

    Transfers during computation do not count. If transfers overlap, their common time counts for the first direction.
    """
    per_step = 1e9 * len(device_view)
    seconds, counted = {COMPUTING: device_view.working_intervals.length / per_step}, device_view.working_intervals
    for direction in TRANSFER_DIRECTIONS:
        uncounted = device_view.copying(direction).difference(counted)
        seconds[direction] = uncounted.length / per_step
        counted = counted.union(uncounted)
    return seconds


def _idle_seconds(device_view: DeviceView) -> dict[str, float]:
    """Return for each part the seconds per step in which it keeps the device idle."""
    seconds = dict.fromkeys(DEVICE_PARTS, 0.0)
    for idle in device_view.idle_times:
        seconds[idle.cause] += idle.seconds
    return seconds


def _shorten(parts: dict[str, float], names: tuple[str, ...], excess: float) -> float:
    """Shorten the named parts in proportion, by `excess` seconds at most. Return the removed seconds."""
    total = sum(parts[name] for name in names)
    removed = min(max(0.0, excess), total)
    for name in names:
        # Rounding must not make a part negative.
        parts[name] = max(0.0, parts[name] - removed * parts[name] / total) if total else 0.0
    return removed

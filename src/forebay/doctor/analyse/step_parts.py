"""The parts of a step from a device record: device work, and the causes of idle time.

The shares come from recorded steps, the total from unprofiled steps. Recording costs the host some microseconds per
launch and costs the device nothing. So the excess of a recorded step is subtracted from the host parts, first from
launching.
"""

from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.idle_time import CAUSES, IDLE, LAUNCHING, PYTHON

__all__ = ["COMPUTING", "COPYING", "DEVICE_PARTS", "split_recorded_step"]

COMPUTING = "computing"
DEVICE_PARTS = (*CAUSES, LAUNCHING, COMPUTING, PYTHON, IDLE)
COPYING = ("host to device", "device to host")
# Parts that recording makes longer: first CUDA calls and the Python code between them, then other calls.
_RECORDING_COSTS = ((LAUNCHING, PYTHON), tuple(CAUSES))


def split_recorded_step(device_view: DeviceView, step_seconds: float) -> dict[str, float]:
    """Return the seconds of each part; the parts add up to the step."""
    device, host = _device_seconds(device_view), _idle_seconds(device_view)
    excess = device_view.seconds - step_seconds
    for names in _RECORDING_COSTS:
        excess -= _shorten(host, names, excess)
    parts = {name: host[name] + device.get(name, 0.0) for name in DEVICE_PARTS}
    whole = sum(parts.values())
    return {name: value * step_seconds / whole for name, value in parts.items()} if whole else parts


def _device_seconds(device_view: DeviceView) -> dict[str, float]:
    """Return the seconds of device work; copies during computation do not count."""
    per_step = 1e9 * len(device_view)
    found, taken = {COMPUTING: device_view.working.length / per_step}, device_view.working
    for direction in COPYING:
        alone = device_view.copying(direction).difference(taken)
        found[direction] = alone.length / per_step
        taken = taken.union(alone)
    return found


def _idle_seconds(device_view: DeviceView) -> dict[str, float]:
    found = dict.fromkeys(DEVICE_PARTS, 0.0)
    for gap in device_view.idle_times:
        found[gap.cause] += gap.seconds
    return found


def _shorten(parts: dict[str, float], names: tuple[str, ...], excess: float) -> float:
    """Shorten parts in proportion by at most `excess` seconds; return how much."""
    whole = sum(parts[name] for name in names)
    taken = min(max(0.0, excess), whole)
    for name in names:
        # Rounding must not make a part negative.
        parts[name] = max(0.0, parts[name] - taken * parts[name] / whole) if whole else 0.0
    return taken

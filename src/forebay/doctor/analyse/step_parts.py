"""What a step is made of where the device was recorded: what it did, and what it waited for while it did nothing. Pure.

Shares come from the recorded steps, the whole from steps that nobody watched. Recording takes the host some
microseconds for every launch and takes the device nothing: what a recorded step is too long is taken off the host's
own parts, launching before others.
"""

from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.idle_time import CAUSES, IDLE, LAUNCHING, PYTHON

__all__ = ["COMPUTING", "COPYING", "DEVICE_PARTS", "parts_of"]

COMPUTING = "computing"
DEVICE_PARTS = (*CAUSES, LAUNCHING, COMPUTING, PYTHON, IDLE)
COPYING = ("host to device", "device to host")
# What recording makes longer, the surest first: calls of CUDA's, then what goes on between them, then other calls.
_RECORDING_COSTS = ((LAUNCHING, PYTHON), tuple(CAUSES))


def parts_of(view: DeviceView, step_seconds: float) -> dict[str, float]:
    """Seconds of a step, by what they went on; together they are the step."""
    device, host = _busy(view), _waiting(view)
    excess = view.seconds - step_seconds
    for names in _RECORDING_COSTS:
        excess -= _shorten(host, names, excess)
    parts = {name: host[name] + device.get(name, 0.0) for name in DEVICE_PARTS}
    whole = sum(parts.values())
    return {name: value * step_seconds / whole for name, value in parts.items()} if whole else parts


def _busy(view: DeviceView) -> dict[str, float]:
    """What the device did; a copy counts where nothing is computed meanwhile."""
    per_step = 1e9 * len(view)
    found, taken = {COMPUTING: view.working.length / per_step}, view.working
    for direction in COPYING:
        alone = view.copying(direction).without(taken)
        found[direction] = alone.length / per_step
        taken = taken.joined(alone)
    return found


def _waiting(view: DeviceView) -> dict[str, float]:
    found = dict.fromkeys(DEVICE_PARTS, 0.0)
    for gap in view.gaps:
        found[gap.cause] += gap.seconds
    return found


def _shorten(parts: dict[str, float], names: tuple[str, ...], excess: float) -> float:
    """Take it off these parts, each in proportion, as far as they reach; how much that was."""
    whole = sum(parts[name] for name in names)
    taken = min(max(0.0, excess), whole)
    for name in names:
        parts[name] = max(0.0, parts[name] - taken * parts[name] / whole) if whole else 0.0  # never less by rounding
    return taken

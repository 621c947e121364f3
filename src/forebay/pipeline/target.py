"""Where batches end up: the engine and the hand-off for a device by name, and what was found there."""

import re
from dataclasses import dataclass
from typing import Any

from forebay.core import registry
from forebay.core.decision import Reason
from forebay.core.engine import Engine
from forebay.core.handoff import DeviceHandOff, HandOff
from forebay.errors import DeviceError

__all__ = ["Place", "find_place"]


@dataclass(frozen=True, slots=True)
class Place:
    """An engine and a hand-off that fit together; `side` is the hand-off again, where it is a device's."""

    engine: Engine
    hand_off: HandOff
    side: DeviceHandOff | None = None
    available_nbytes: int = 0
    notes: tuple[Reason, ...] = ()


def find_place(device: Any, to: str) -> Place:
    """The place for `feed(to, device=...)`: "auto" takes a GPU where the framework and the driver both see one."""
    hand_off: HandOff = registry.hand_off(to)()
    if hasattr(device, "open_slot"):
        return _of_engine(device, hand_off)
    device = f"cuda:{device}" if isinstance(device, int) else str(device).lower()  # a torch.device names itself
    if device == "cpu" or (device == "auto" and to == "numpy"):
        return Place(registry.engine("cpu")(), hand_off)
    if device == "auto":
        try:
            return _on_device(hand_off, None)
        except (DeviceError, ImportError) as error:
            note = Reason("device", "cpu", f"no GPU to feed: {str(error).split(': ')[0]}")
            return Place(registry.engine("cpu")(), hand_off, notes=(note,))
    return _on_device(hand_off, _index(device))


def _of_engine(engine: Any, hand_off: HandOff) -> Place:
    side = getattr(engine, "side", None)
    if side is None:
        return Place(engine, hand_off)
    return Place(engine, side, side, side.available(*engine.device.memory()))


def _index(device: str) -> int:
    match = re.fullmatch(r"(?:cuda|gpu)(?::(\d+))?", device.lower())
    if match is None:
        raise DeviceError(f"device={device!r} is unknown: choose 'auto', 'cpu', 'cuda' or 'cuda:1'.")
    return int(match[1] or 0)


def _on_device(hand_off: HandOff, index: int | None) -> Place:
    side = hand_off.on_device(index)
    try:
        made: Any = registry.engine("cuda")(side)
    except ImportError as error:
        raise DeviceError(
            f"feeding a GPU needs NVIDIA's Python bindings, and {error.name!r} is missing: "
            "pip install 'forebay[cu13]' (or 'forebay[cu12]'), or pass device='cpu'."
        ) from error
    return _of_engine(made, hand_off)

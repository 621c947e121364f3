"""The target of a feed: the engine and the hand-off for `feed(to, device=...)`."""

import re
from dataclasses import dataclass, replace
from typing import Any

from forebay.core import registry
from forebay.core.decision import Decision
from forebay.core.engine import Engine
from forebay.core.handoff import BatchSplit, CastingHandOff, DeviceHandOff, HandOff, PlacedHandOff
from forebay.core.plugin_names import adapt_engine
from forebay.errors import DeviceError

__all__ = ["Target", "resolve_target"]


@dataclass(frozen=True, slots=True)
class Target:
    """An engine and the hand-off that fits it."""

    engine: Engine
    hand_off: HandOff
    device_handoff: DeviceHandOff | None = None  # the same object as `hand_off` for the engine of a GPU, else None
    available_nbytes: int = 0  # device memory that the framework can still allocate; 0 for the CPU
    decisions: tuple[Decision, ...] = ()  # about the devices, such as why device="auto" selected the CPU
    split: BatchSplit | None = None  # the parts of a batch; None unless `device` is an object such as a `NamedSharding`
    place: str = "the CPU"  # for error messages: where batches go if Forebay itself fills slots in host memory

    @property
    def runs_device_transforms(self) -> bool:
        """Whether the framework can run device transforms.

        It can on a GPU. It also can on a single other device, such as the CPU, if the hand-off has `cast`.
        """
        return self.device_handoff is not None or (self.split is None and isinstance(self.hand_off, CastingHandOff))


def resolve_target(device: Any, to: str) -> Target:
    """Return the target of `feed(to, device=...)`.

    `device` is a name such as "cuda:0", the index of a GPU, a `torch.device`, an engine, or an object of a framework
    that describes several devices, such as a `NamedSharding` of JAX. `"auto"` selects the CPU for NumPy. For other
    frameworks, it selects a GPU if the framework and the driver see one, else another accelerator of the framework,
    else the CPU.
    """
    is_engine = hasattr(device, "open_slot")
    if not isinstance(device, str | int) and not is_engine:
        placed = registry.load_placed_hand_off(to, device)
        if placed is not None:
            return _placed_target(placed)
    hand_off: HandOff = registry.load_hand_off(to)()
    if is_engine:
        return _target_of_engine(adapt_engine(device), hand_off)
    # str() converts a torch.device to a name such as "cuda:0".
    device = f"cuda:{device}" if isinstance(device, int) else str(device).lower()
    if device == "cpu" or (device == "auto" and to == "numpy"):
        return Target(registry.load_engine("cpu")(), hand_off)
    if device == "auto":
        try:
            return _cuda_target(hand_off, None)
        except (DeviceError, ImportError) as error:
            copying = registry.load_copying_hand_off(to, device)
            if copying is not None:
                return _copying_target(copying)
            first_clause = re.split(r"[:.] ", str(error))[0]
            decision = Decision("device", "cpu", f"no GPU to feed: {first_clause}")
            return Target(registry.load_engine("cpu")(), hand_off, decisions=(decision,))
    match = re.fullmatch(r"(?:cuda|gpu)(?::(\d+))?", device)
    if match is not None:
        return _cuda_target(hand_off, int(match[1] or 0))
    copying = registry.load_copying_hand_off(to, device) if re.fullmatch(r"[a-z]+(?::\d+)?", device) else None
    if copying is None:
        raise DeviceError(f"device={device!r} is unknown: choose 'auto', 'cpu', 'cuda' or 'cuda:1'.")
    return _copying_target(copying)


def _copying_target(hand_off: Any) -> Target:
    """Return the target for a device to which the framework itself copies batches."""
    why = f"{hand_off.name} itself copies each batch to this device; Forebay writes to NVIDIA GPUs only"
    decision = Decision("device", str(hand_off.device), why)
    return Target(registry.load_engine("cpu")(), hand_off, decisions=(decision,), place=str(hand_off.device))


def _cuda_target(hand_off: HandOff, index: int | None) -> Target:
    device_handoff = hand_off.for_device(index)
    try:
        engine: Any = registry.load_engine("cuda")(device_handoff)
    except ImportError as error:
        raise DeviceError(
            f"feeding a GPU needs NVIDIA's Python bindings, and {error.name!r} is missing. "
            "Run pip install 'forebay[cu13]' (or 'forebay[cu12]'), or pass device='cpu'."
        ) from error
    return _target_of_engine(engine, hand_off)


def _placed_target(hand_off: PlacedHandOff) -> Target:
    """Return the target for the several devices that the user's object describes.

    The object belongs to the framework, such as a `NamedSharding` of JAX.
    """
    index = hand_off.gpu_index
    target = Target(registry.load_engine("cpu")(), hand_off) if index is None else _cuda_target(hand_off, index)
    return replace(target, decisions=(Decision("device", *hand_off.description),), split=hand_off.split)


def _target_of_engine(engine: Any, hand_off: HandOff) -> Target:
    device_handoff: DeviceHandOff | None = engine.device_handoff
    if device_handoff is None:
        return Target(engine, hand_off)
    return Target(engine, device_handoff, device_handoff, device_handoff.available(*engine.device.memory()))

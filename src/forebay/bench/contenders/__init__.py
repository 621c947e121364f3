"""Who takes part: one peer a file, imported only in a process of its own.

Each file has `epochs(work) -> StartEpoch`: set everything up, and return the function that starts one epoch.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast

from forebay.bench.model import StartEpoch, Work

__all__ = ["CONTENDERS", "Contender", "ContenderModule", "load_contender"]


class ContenderModule(Protocol):
    """What a contender's file offers."""

    def epochs(self, work: Work) -> StartEpoch: ...


@dataclass(frozen=True, slots=True)
class Contender:
    """Where a peer's file is, and what must be installed for it."""

    name: str
    module: str
    requires: tuple[str, ...]
    install: str

    def missing(self) -> tuple[str, ...]:
        """The modules that are not installed; nothing is imported to find out."""
        return tuple(module for module in self.requires if find_spec(module) is None)


def load_contender(module: str) -> ContenderModule:
    """Import a contender's file, and its framework with it."""
    return cast("ContenderModule", import_module(module))


def _peer(name: str, *requires: str, file: str = "") -> Contender:
    install = f"pip install {' '.join(requires)}" if requires else ""
    return Contender(name, f"{__name__}.{file or name}", requires, install)


CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (
        _peer("floor"),
        _peer("row_loop"),
        _peer("forebay", file="forebay_feed"),
        _peer("forebay_torch", "torch", file="forebay_feed"),
        _peer("forebay_tensorflow", "tensorflow", file="forebay_feed"),
        _peer("forebay_jax", "jax", file="forebay_feed"),
        _peer("keras_adapter", "tensorflow", "keras"),
        _peer("tf_slices", "tensorflow"),
        _peer("tf_generator", "tensorflow"),
        _peer("tf_call", "tensorflow"),
        _peer("torch_loader", "torch"),
        _peer("torch_tuned", "torch"),
        _peer("torch_iterable", "torch"),
        _peer("torch_call", "torch"),
        _peer("jax_call", "jax"),
        _peer("grain_loader", "grain"),
    )
}

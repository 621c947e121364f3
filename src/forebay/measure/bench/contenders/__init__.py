"""Who takes part: one peer a file, imported only in a process of its own.

Each file has `epochs(work) -> StartEpoch`: set everything up, and return the function that starts one epoch.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast

from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["CONTENDERS", "Contender", "ContenderModule", "load_contender"]

KERAS_BACKENDS = ("tensorflow", "jax", "torch")


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
        """The modules that are not installed; no framework is imported to find out."""
        return tuple(module for module in self.requires if not _found(module))


def load_contender(module: str) -> ContenderModule:
    """Import a contender's file, and its framework with it."""
    return cast("ContenderModule", import_module(module))


def _found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a part of a package: the package itself is missing
        return False


def _peer(name: str, *requires: str, file: str = "", install: str = "") -> Contender:
    install = install or f"pip install {' '.join(requires)}" if requires else ""
    return Contender(name, f"{__name__}.{file or name}", requires, install)


def _gpu_peer(name: str, *requires: str, file: str = "", install: str = "") -> Contender:
    return _peer(f"gpu_{name}", *requires, file=f"gpu.{file or name}", install=install)


def _gpu_feed(framework: str, *requires: str, file: str = "forebay_feed", package: str = "") -> Contender:
    requires = requires or (framework,)
    install = f"pip install {package or ' '.join(requires)} 'forebay[cu13]'"
    return _peer(f"gpu_forebay_{framework}", *requires, "cuda.bindings", file=file, install=install)


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
        _peer("disk_fio"),
        _peer("disk_plain"),
        _peer("disk_feed"),
        _peer("disk_mapped"),
        _gpu_peer("dma_peak", "cuda.bindings", install="pip install 'forebay[cu13]'"),
        _gpu_peer(
            "dma_peak_busy", "cuda.bindings", "torch", file="dma_peak", install="pip install torch 'forebay[cu13]'"
        ),
        _gpu_feed("torch"),
        _gpu_feed("jax"),
        _gpu_feed("tensorflow"),
        _gpu_feed("cupy", package="cupy-cuda13x"),
        *(_gpu_feed(f"keras_{backend}", "keras", backend, file="gpu.keras_feed") for backend in KERAS_BACKENDS),
        _gpu_peer("torch_loader", "torch"),
        _gpu_peer("torch_tuned", "torch"),
        _gpu_peer("torch_index", "torch"),
        _gpu_peer("torch_ahead", "torch"),
        _gpu_peer("torch_resident", "torch"),
        _gpu_peer("jax_put", "jax"),
        _gpu_peer("grain", "grain", "jax"),
        _gpu_peer("spdl", "spdl.pipeline", "torch", install="pip install spdl-core torch"),
        _gpu_peer("dali", "nvidia.dali", "torch", install="pip install nvidia-dali-cuda130 torch"),
        _gpu_peer("tf_slices", "tensorflow"),
        _gpu_peer("tf_call", "tensorflow"),
        _gpu_peer("keras_tf_data", "keras", "tensorflow"),
        *(_gpu_peer(f"keras_{backend}_arrays", "keras", backend, file="keras_arrays") for backend in KERAS_BACKENDS),
        *(_gpu_peer(f"keras_{backend}_again", "keras", backend, file="keras_again") for backend in KERAS_BACKENDS),
    )
}

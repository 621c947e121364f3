"""The hardware that measured speeds depend on; its fingerprint names the probe file."""

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from forebay.core.machine import Machine
from forebay.core.nvml import Nvml

__all__ = ["Hardware", "is_cuda_installed", "are_gpus_hidden"]

_HIDDEN = ("", "-1", "NoDevFiles")  # values of CUDA_VISIBLE_DEVICES that hide all GPUs


@dataclass(frozen=True, slots=True)
class Hardware:
    """CPU, memory, and the GPUs that CUDA can use in this process."""

    cpu: str
    cores: int
    memory_nbytes: int
    gpus: tuple[str, ...]
    driver_version: str

    @classmethod
    def detect(cls) -> "Hardware":
        """Read the hardware of this machine.

        `gpus` is empty if CUDA is not installed or sees no GPU.
        """
        machine = Machine.detect()
        gpus, driver = _driver() if is_cuda_installed() and not are_gpus_hidden() else ((), "")
        return cls(machine.cpu, machine.cores, machine.memory_nbytes, gpus, driver)

    @property
    def fingerprint(self) -> str:
        """A hash of all facts, with memory rounded to GiB.

        The kernel reserves a slightly different amount of memory at each boot.
        """
        gibibytes = round(self.memory_nbytes / 2**30)
        facts = (self.cpu, self.cores, gibibytes, *self.gpus, self.driver_version)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


@cache  # the driver query is slow, and its answer does not change while the process runs
def _driver() -> tuple[tuple[str, ...], str]:
    with Nvml() as nvml:
        return nvml.gpu_names, nvml.driver_version


def is_cuda_installed() -> bool:
    """Return whether the package cuda-bindings is installed."""
    try:
        return find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:
        return False


def are_gpus_hidden() -> bool:
    """Return whether CUDA_VISIBLE_DEVICES hides every GPU from this process."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in _HIDDEN

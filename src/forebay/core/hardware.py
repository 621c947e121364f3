"""The hardware on which measured speeds depend.

Its fingerprint is part of the probe's file name.
"""

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from forebay.core.machine import Machine
from forebay.core.nvml import Nvml

__all__ = ["Hardware", "is_cuda_installed", "are_gpus_hidden"]

_VALUES_THAT_HIDE_GPUS = ("", "-1", "NoDevFiles")  # of CUDA_VISIBLE_DEVICES


@dataclass(frozen=True, slots=True)
class Hardware:
    """CPU, memory and GPUs of this machine."""

    cpu: str
    cores: int  # that this process may use
    memory_nbytes: int
    gpus: tuple[str, ...]
    driver_version: str

    @classmethod
    def detect(cls) -> "Hardware":
        """Read the hardware of this machine.

        `gpus` is empty if cuda-bindings is not installed or CUDA_VISIBLE_DEVICES hides all GPUs.
        """
        machine = Machine.detect()
        gpus, driver = _gpu_names_and_driver() if is_cuda_installed() and not are_gpus_hidden() else ((), "")
        return cls(machine.cpu, machine.cores, machine.memory_nbytes, gpus, driver)

    @property
    def fingerprint(self) -> str:
        """A hash of all fields, with memory rounded to GiB.

        Rounding, because the kernel reserves a slightly different amount of memory at each boot.
        """
        gibibytes = round(self.memory_nbytes / 2**30)
        facts = (self.cpu, self.cores, gibibytes, *self.gpus, self.driver_version)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


@cache  # the driver query is slow, and its answer does not change while the process runs
def _gpu_names_and_driver() -> tuple[tuple[str, ...], str]:
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
    return os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in _VALUES_THAT_HIDE_GPUS

"""The hardware on which measured speeds depend.

A probe is the saved speeds of a machine. The name of its file contains the fingerprint of the hardware.
"""

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from forebay.core.machine import Machine
from forebay.core.nvml import Nvml

__all__ = ["Hardware", "is_cuda_installed", "are_gpus_hidden"]

_VALUES_THAT_HIDE_GPUS = ("", "-1", "NoDevFiles")  # values of CUDA_VISIBLE_DEVICES that hide all GPUs


@dataclass(frozen=True, slots=True)
class Hardware:
    """CPU, memory and GPUs of this machine."""

    cpu: str  # model name
    cores: int  # cores that this process may use
    memory_nbytes: int  # memory that this process may use
    gpus: tuple[str, ...]  # model names
    driver_version: str

    @classmethod
    def detect(cls) -> "Hardware":
        """Return the hardware of this machine.

        `gpus` and `driver_version` are empty if cuda-bindings, pynvml or the driver is missing, or if
        CUDA_VISIBLE_DEVICES hides all GPUs. If the variable hides only some GPUs, `gpus` still has all names.
        """
        machine = Machine.detect()
        gpus, driver = _gpu_names_and_driver() if is_cuda_installed() and not are_gpus_hidden() else ((), "")
        return cls(machine.cpu, machine.cores, machine.memory_nbytes, gpus, driver)

    @property
    def fingerprint(self) -> str:
        """A hash of all fields, with memory rounded to GiB.

        The kernel reserves a slightly different amount of memory at each boot, so exact bytes would change the hash.
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

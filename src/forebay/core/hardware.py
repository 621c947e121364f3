"""Which machine this is, as far as figures depend on it: what they were measured on, and where they are kept."""

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from forebay.core.machine import Machine
from forebay.core.nvml import Nvml

__all__ = ["Hardware", "cuda_installed", "gpus_hidden"]

_HIDDEN = ("", "-1", "NoDevFiles")  # values of CUDA_VISIBLE_DEVICES that leave none


@dataclass(frozen=True, slots=True)
class Hardware:
    """What can be measured here: no GPUs where CUDA cannot be called, or does not see them."""

    cpu: str
    cores: int
    memory_nbytes: int
    gpus: tuple[str, ...]
    driver_version: str

    @classmethod
    def here(cls) -> "Hardware":
        machine = Machine.here()
        gpus, driver = _driver() if cuda_installed() and not gpus_hidden() else ((), "")
        return cls(machine.cpu, machine.cores, machine.memory_nbytes, gpus, driver)

    @property
    def fingerprint(self) -> str:
        """Memory counts in GiB: a kernel takes a little more or less of it for itself at each start."""
        gibibytes = round(self.memory_nbytes / 2**30)
        facts = (self.cpu, self.cores, gibibytes, *self.gpus, self.driver_version)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


@cache  # the driver takes its time to answer, and its answer holds for as long as the process
def _driver() -> tuple[tuple[str, ...], str]:
    with Nvml() as nvml:
        return nvml.names, nvml.driver_version


def cuda_installed() -> bool:
    """Whether cuda-bindings is."""
    try:
        return find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:
        return False


def gpus_hidden() -> bool:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in _HIDDEN

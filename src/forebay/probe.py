"""The measured ceilings of this machine: its memory, its disk, its GPU and the link between.

Measuring takes seconds and the whole machine, so only `forebay probe` does it. Planning a feed reads `Probe.cached()`,
which measures nothing.
"""

import json
import logging
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from forebay.probing.figures import DeviceFigures, DiskFigures, HostFigures
from forebay.probing.hardware import Hardware
from forebay.probing.saving import cache_folder, from_json, to_json, write_atomically

__all__ = ["Probe"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Probe:
    """What was measured on one machine, when, and what could not be."""

    hardware: Hardware
    measured_at: datetime
    seconds: float
    host: HostFigures
    disk: DiskFigures | None
    device: DeviceFigures | None
    missing: tuple[str, ...]

    @classmethod
    def cached(cls) -> "Probe | None":
        """What was last measured on this machine, or None; a file that cannot be used counts as none."""
        try:
            if next(cache_folder().glob("probe-*.json"), None) is None:  # nobody ever measured: no need to know the GPU
                return None
            hardware = Hardware.here()
            return cls._read(_path(hardware), hardware)
        except FileNotFoundError:
            return None
        except (OSError, RuntimeError, ValueError) as error:
            _log.warning("the saved probe cannot be used: %s. `forebay probe --fresh` replaces it.", error)
            return None

    def save(self) -> Path:
        """Keep it for `cached`; the file it is in."""
        try:
            path = _path(self.hardware)
            write_atomically(path, self.to_json())
        except (OSError, RuntimeError) as error:
            raise OSError(f"the probe could not be saved: {error}. Set XDG_CACHE_HOME to a folder of yours.") from error
        return path

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @classmethod
    def _read(cls, path: Path, hardware: Hardware) -> "Probe":
        probe = from_json(cls, json.loads(path.read_text()))
        if probe.hardware.fingerprint != hardware.fingerprint:
            raise ValueError(f"{path} was measured on another machine")
        return probe


def _path(hardware: Hardware) -> Path:
    return cache_folder() / f"probe-{hardware.fingerprint}.json"

"""An emulation from start to stop: installed below the hooks when frameworks are imported, and removed again."""

import importlib
import sys
from contextlib import suppress
from functools import partial

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.capture.post_import import PostImportActions
from forebay.doctor.emulate.batches import ResidentBatches
from forebay.doctor.emulate.target_line import TargetLine
from forebay.doctor.emulate.transfers import PreparedUploads, SkippedReads, UploadPrefetch, UploadReuse
from forebay.doctor.model.emulation import Emulation

__all__ = ["FRAMEWORKS", "Emulator"]

FRAMEWORKS = {name: f"forebay.doctor.emulate.{name}" for name in ("torch", "tensorflow", "keras", "jax", "cupy")}


class Emulator:
    """Start it before the hooks, so that it lies below them."""

    def __init__(self, emulation: Emulation) -> None:
        target = TargetLine(emulation.file, emulation.number)
        self.kind = emulation.kind
        self.batches = ResidentBatches(emulation, target)
        self.uploads = UploadReuse(emulation, target, self.batches.leaf_ids)
        self.reads = SkippedReads(emulation, target)
        self.prepared = PreparedUploads(emulation, target)
        self.prefetch = UploadPrefetch(emulation, target)
        self.patches = Patches(Ledger())
        self._target = target
        self._imports = PostImportActions({name: partial(self._install, name) for name in FRAMEWORKS})

    def start(self) -> None:
        self._imports.install()

    def stop(self) -> None:
        """Remove everything. It is safe to call this twice."""
        self._imports.remove()
        self.patches.restore()

    @property
    def replaced(self) -> int:
        """The number of calls that were not made as written."""
        parts = (self.batches, self.uploads, self.reads, self.prepared, self.prefetch)
        return sum(part.replaced for part in parts)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what could not be installed."""
        return tuple(self.patches.ledger.notes)

    def wait(self) -> None:
        """Wait until the devices have done everything that the script has queued."""
        for module in [sys.modules[name] for name in FRAMEWORKS.values() if name in sys.modules]:
            with suppress(Exception):  # another version, or nothing to wait for
                self._target.bypass(module.wait)

    def _install(self, name: str) -> None:
        """Install the emulation for a framework. The script must not see an error of ours, so it becomes a note."""
        try:
            importlib.import_module(FRAMEWORKS[name]).install(self)
        except Exception as error:
            self.patches.ledger.note(f"{name} is not emulated: {type(error).__name__}: {error}")

"""The emulator: replaces framework calls when frameworks are imported, and restores them at the end."""

import importlib
import sys
from contextlib import suppress
from functools import partial

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.capture.post_import import PostImportActions
from forebay.doctor.emulate.batches import ResidentBatches
from forebay.doctor.emulate.settings import DisabledSetting
from forebay.doctor.emulate.target_line import TargetLine
from forebay.doctor.emulate.transfers import PreparedUploads, SkippedReads, UploadPrefetch, UploadReuse
from forebay.doctor.model.emulation import Emulation
from forebay.doctor.model.redaction import describe_error

__all__ = ["FRAMEWORKS", "Emulator"]

# Framework -> our module that lists the calls to replace.
FRAMEWORKS = {name: f"forebay.doctor.emulate.{name}" for name in ("torch", "tensorflow", "keras", "jax", "cupy")}
FRAMEWORKS |= {"sys": "forebay.doctor.emulate.python"}


class Emulator:
    """Runs one emulation between `start` and `stop`.

    Start the emulator before a `Session` installs its hooks, so that the hooks wrap the replacements.
    """

    def __init__(self, emulation: Emulation) -> None:
        target = TargetLine(emulation.file, emulation.number)
        self.kind = emulation.kind
        self.batches = ResidentBatches(emulation, target)
        self.uploads = UploadReuse(emulation, target, self.batches.leaf_ids)
        self.reads = SkippedReads(emulation, target)
        self.prepared = PreparedUploads(emulation, target)
        self.prefetch = UploadPrefetch(emulation, target)
        self.settings = DisabledSetting(emulation)
        self.patches = Patches(Ledger())
        self._target = target
        self._imports = PostImportActions({name: partial(self._install, name) for name in FRAMEWORKS})

    def start(self) -> None:
        """Replace calls of loaded frameworks now, and of other frameworks when they are imported."""
        self._imports.install()

    def stop(self) -> None:
        """Restore all replaced calls. It is safe to call this twice."""
        self._imports.remove()
        self.patches.restore()

    @property
    def replaced(self) -> int:
        """The number of calls that did not run as written."""
        parts = (self.batches, self.uploads, self.reads, self.prepared, self.prefetch, self.settings)
        return sum(part.replaced for part in parts)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about calls that could not be replaced."""
        return tuple(self.patches.ledger.notes)

    def is_target_calling(self) -> bool:
        """Whether the target line makes the current call."""
        return self._target.is_calling()

    def wait(self) -> None:
        """Wait until the devices have finished all queued work."""
        for module in [sys.modules[name] for name in FRAMEWORKS.values() if name in sys.modules]:
            with suppress(Exception):  # an unsupported version of the framework
                self._target.bypass(module.wait)

    def _install(self, name: str) -> None:
        """Replace the calls of a framework. An error becomes a note, because it must not reach the script."""
        try:
            importlib.import_module(FRAMEWORKS[name]).install(self)
        except Exception as error:
            self.patches.ledger.note(f"{name} is not emulated: {describe_error(error)}")

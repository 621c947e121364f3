"""An emulation from its beginning to its end: put under the hooks as frameworks are imported, and taken out again."""

import importlib
import sys
from contextlib import suppress
from functools import partial

from forebay.doctor.capture.after_import import AfterImport
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.emulate.batches import Batches
from forebay.doctor.emulate.reads import Reads
from forebay.doctor.emulate.target_line import Place
from forebay.doctor.emulate.uploads import Ahead, Substitutes, Uploads
from forebay.doctor.model.emulation import Emulation

__all__ = ["FRAMEWORKS", "Emulator"]

FRAMEWORKS = {name: f"forebay.doctor.emulate.{name}" for name in ("torch", "tensorflow", "keras", "jax", "cupy")}


class Emulator:
    """Started before the hooks are, so that it lies under them."""

    def __init__(self, emulation: Emulation) -> None:
        place = Place(emulation.file, emulation.number)
        self.way = emulation.way
        self.batches = Batches(emulation, place)
        self.uploads = Uploads(emulation, place, self.batches.leaves)
        self.reads = Reads(emulation, place)
        self.substitutes = Substitutes(emulation, place)
        self.ahead = Ahead(emulation, place)
        self._place = place
        self.patches = Patches(Ledger())
        self._imports = AfterImport({name: partial(self._install, name) for name in FRAMEWORKS})

    def start(self) -> None:
        self._imports.install()

    def stop(self) -> None:
        """Take everything out; safe to call twice."""
        self._imports.remove()
        self.patches.restore()

    @property
    def replaced(self) -> int:
        """How many calls were not made as they are written."""
        return sum(part.replaced for part in (self.batches, self.uploads, self.reads, self.substitutes, self.ahead))

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be put in place."""
        return tuple(self.patches.ledger.notes)

    def wait(self) -> None:
        """Until all that the script has queued so far is done."""
        for module in [sys.modules[name] for name in FRAMEWORKS.values() if name in sys.modules]:
            with suppress(Exception):  # another version, or nothing to wait for
                self._place.let_through(module.wait)

    def _install(self, name: str) -> None:
        """Never the user's trouble: what fails here is told with the result."""
        try:
            importlib.import_module(FRAMEWORKS[name]).install(self)
        except Exception as error:
            self.patches.ledger.note(f"{name} is left as it is: {type(error).__name__}: {error}")

"""Uploads of something prepared: the first data of its kind, locked or narrowed, in place of all that come after."""

from collections.abc import Callable, Hashable
from typing import Any

from forebay.doctor.capture.emulate.place import Place
from forebay.doctor.capture.emulate.uploads import signature_of
from forebay.doctor.emulation import Emulation, Way

__all__ = ["Substitutes"]


class Substitutes:
    """Asked at every upload, whoever makes it. It is made all the same, with nothing done for it on the host."""

    def __init__(self, emulation: Emulation, place: Place) -> None:
        self._emulation, self._place = emulation, place
        self._kept: dict[Hashable, Any] = {}
        self.replaced = 0

    def instead(self, data: Any, prepare: Callable[[Any], Any]) -> Any:
        """What is to be uploaded: what `prepare` has made of such data, or the data itself."""
        if self._emulation.way not in (Way.LOCK, Way.NARROW) or not self._place.is_here():
            return data
        key = signature_of(data)
        if key not in self._kept:
            prepared = self._place.let_through(lambda: prepare(data))
            self._kept[key] = None if prepared is data else prepared
        if self._kept[key] is None:
            return data  # there is nothing to prepare
        self.replaced += 1
        return self._kept[key]

"""Uploads made a step ahead: whoever asks gets what was uploaded the last time, while this upload goes on beside."""

from collections.abc import Callable, Hashable
from typing import Any

from forebay.doctor.capture.emulate.place import Place
from forebay.doctor.capture.emulate.uploads import signature_of
from forebay.doctor.emulation import Emulation, Way

__all__ = ["Ahead"]


class Ahead:
    """Asked at every upload, whoever makes it."""

    def __init__(self, emulation: Emulation, place: Place) -> None:
        self._emulation, self._place = emulation, place
        self._coming: dict[Hashable, Any] = {}
        self.replaced = 0

    def instead(self, upload: Callable[[], Any], data: Any, begin: Callable[[Callable[[], Any]], Any]) -> Any:
        """What came of the last such upload; `begin` starts this one, and gives a function that hands it over."""
        if self._emulation.way is not Way.AHEAD or not self._place.is_here():
            return upload()
        key = signature_of(data)
        before = self._coming.get(key)
        self._coming[key] = self._place.let_through(lambda: begin(upload))
        self.replaced += before is not None
        return (before or self._coming[key])()

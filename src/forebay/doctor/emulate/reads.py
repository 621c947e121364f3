"""Reads and waits left out: whoever asks for a value gets the one that was read the last time."""

from collections.abc import Callable, Hashable
from typing import Any

from forebay.doctor.emulate.target_line import Place
from forebay.doctor.emulate.uploads import signature_of
from forebay.doctor.model.emulation import Emulation, Way

__all__ = ["Reads"]


class Reads:
    """Asked at every read, whoever makes it."""

    def __init__(self, emulation: Emulation, place: Place) -> None:
        self._emulation, self._place = emulation, place
        self._kept: dict[Hashable, Any] = {}
        self._calls: dict[Hashable, int] = {}
        self.replaced = 0

    def instead(self, read: Callable[[], Any], api: str, source: Any) -> Any:
        """What `read` gives, now or when something like `source` was read the last time."""
        if self._emulation.way is not Way.DEFER or not self._place.is_here():
            return read()
        key = api, signature_of(source)
        if self._is_due(key):
            self._kept[key] = self._place.let_through(read)
        return self._kept[key]

    def waited(self, wait: Callable[[], Any], api: str, otherwise: Any = None) -> Any:
        """What `wait` gives; `otherwise`, where nobody is to wait."""
        if self._emulation.way is not Way.SKIP or not self._place.is_here():
            return wait()
        return self._place.let_through(wait) if self._is_due(api) else otherwise

    def _is_due(self, key: Hashable) -> bool:
        """The first of its kind, and from then on each so-manieth."""
        count = self._calls[key] = self._calls.get(key, 0) + 1
        due = count == 1 or (bool(self._emulation.every) and count % self._emulation.every == 0)
        self.replaced += not due
        return due

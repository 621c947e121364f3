"""Uploads left out: where the data was uploaded before, what came of it then is given once more."""

import zlib
from collections.abc import Callable, Collection, Hashable
from typing import Any

from forebay.doctor.capture.data_fingerprint import key_of
from forebay.doctor.emulate.target_line import Place
from forebay.doctor.model.emulation import Emulation, Way

__all__ = ["Ahead", "Substitutes", "Uploads", "signature_of"]

# To sample data takes longer than some steps do: an object that was the same so often is looked at now and then only.
SURE, NOW_AND_THEN = 8, 16

Keep = Callable[[Any], bool]


class Uploads:
    """Asked at every upload, whoever makes it. `resident` holds the ids of what a resident batch is made of."""

    def __init__(self, emulation: Emulation, place: Place, resident: Collection[int]) -> None:
        self._emulation, self._place, self._resident = emulation, place, resident
        self._kept: dict[Hashable, Any] = {}
        self._calls: dict[Hashable, int] = {}
        self._sampled: dict[int, tuple[str, int]] = {}  # by object: what its data looked like, how often
        self.replaced = 0

    def instead(
        self,
        upload: Callable[[], Any],
        data: Any,
        *asked: Any,
        sample: Callable[[Any], str] = key_of,
        keep: Keep = lambda result: True,
    ) -> Any:
        """What `upload` gives, now or before, for such data and what else was asked for; `keep`: if it may be kept."""
        key = self._key_of(data, sample)
        if key is None:
            return upload()
        place = (key, *map(_hashable, asked))
        count = self._calls[place] = self._calls.get(place, 0) + 1
        kept = self._kept.get(place)
        if kept is not None and keep(kept) and (not self._emulation.every or count % self._emulation.every):
            self.replaced += 1
            return kept
        result = self._place.let_through(upload)
        if keep(result):
            self._kept[place] = result
        return result

    def are_meant(self, data: Any) -> bool:
        """Whether an upload of this data, here, may be left out."""
        if self._emulation.way is Way.RESIDENT:
            return id(data) in self._resident
        return self._emulation.way in (Way.REMEMBER, Way.REUSE) and self._place.is_here()

    def _key_of(self, data: Any, sample: Callable[[Any], str]) -> Hashable:
        """What makes two uploads one; None where this one is to be made as it is written."""
        if not self.are_meant(data):
            return None
        if self._emulation.way is Way.RESIDENT:
            return id(data)
        return signature_of(data) if self._emulation.way is Way.REUSE else self._sample_of(data, sample) or None

    def _sample_of(self, data: Any, sample: Callable[[Any], str]) -> str:
        key, count = self._sampled.get(id(data), ("", 0))
        if count < SURE or count % NOW_AND_THEN == 0:
            found = _sample_of_list(data) if isinstance(data, list | tuple) else sample(data)
            key, count = found, count if found == key else 0
        self._sampled[id(data)] = key, count + 1
        return key


def signature_of(data: Any) -> Hashable:
    """What data of one kind has in common."""
    if isinstance(data, list | tuple):
        return type(data), len(data), signature_of(data[0]) if data else None
    return type(data), tuple(getattr(data, "shape", ())), str(getattr(data, "dtype", ""))


def _sample_of_list(values: Any) -> str:
    """The beginning, the middle and the end of a list of Python's, as text."""
    if not values:
        return ""
    some = values[0], values[len(values) // 2], values[-1]
    return f"{len(values)} {zlib.crc32(repr(some).encode()):08x}"


def _hashable(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value  # type: ignore[no-any-return]  # it was hashed just now


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

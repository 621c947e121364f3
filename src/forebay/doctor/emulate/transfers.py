"""Emulates fewer or cheaper transfers: uploads that are reused, prepared or prefetched, and reads that are skipped."""

import zlib
from collections.abc import Callable, Collection, Hashable
from typing import Any

from forebay.doctor.capture.data_fingerprint import fingerprint
from forebay.doctor.emulate.target_line import TargetLine
from forebay.doctor.model.emulation import Emulation, EmulationKind

__all__ = ["PreparedUploads", "SkippedReads", "UploadPrefetch", "UploadReuse", "kind_of_data"]

# A fingerprint takes longer than some steps. After EXAMINED_CALLS equal fingerprints of an object, only one call in
# SAMPLED_CALLS takes another.
EXAMINED_CALLS, SAMPLED_CALLS = 8, 16


class UploadReuse:
    """Decides for every upload whether to return an earlier result. `resident` holds ids of resident arrays."""

    def __init__(self, emulation: Emulation, target: TargetLine, resident: Collection[int]) -> None:
        self._emulation, self._target, self._resident = emulation, target, resident
        self._kept: dict[Hashable, Any] = {}
        self._calls: dict[Hashable, int] = {}
        self._fingerprints: dict[int, tuple[str, int]] = {}  # id of an object -> fingerprint, calls since it changed
        self.replaced = 0

    def upload(
        self,
        upload: Callable[[], Any],
        data: Any,
        *options: Any,
        take_fingerprint: Callable[[Any], str] = fingerprint,
        may_keep: Callable[[Any], bool] = lambda result: True,
    ) -> Any:
        """Return an earlier result for such data and options, or call `upload` and keep its result."""
        key = self._key_of(data, take_fingerprint)
        if key is None:
            return upload()
        full_key = (key, *map(_hashable, options))
        count = self._calls[full_key] = self._calls.get(full_key, 0) + 1
        kept = self._kept.get(full_key)
        if kept is not None and may_keep(kept) and (not self._emulation.every or count % self._emulation.every):
            self.replaced += 1
            return kept
        result = self._target.bypass(upload)
        if may_keep(result):
            self._kept[full_key] = result
        return result

    def applies(self, data: Any) -> bool:
        """Whether an upload of this data by the current line may be skipped."""
        if self._emulation.kind is EmulationKind.RESIDENT:
            return id(data) in self._resident
        kinds = (EmulationKind.REMEMBER, EmulationKind.REUSE)
        return self._emulation.kind in kinds and self._target.is_calling()

    def _key_of(self, data: Any, take_fingerprint: Callable[[Any], str]) -> Hashable:
        """Return a key that is equal for uploads with equal results; None: make the upload as written."""
        if not self.applies(data):
            return None
        if self._emulation.kind is EmulationKind.RESIDENT:
            return id(data)
        if self._emulation.kind is EmulationKind.REUSE:
            return kind_of_data(data)
        return self._cached_fingerprint(data, take_fingerprint) or None

    def _cached_fingerprint(self, data: Any, take_fingerprint: Callable[[Any], str]) -> str:
        key, count = self._fingerprints.get(id(data), ("", 0))
        if count < EXAMINED_CALLS or count % SAMPLED_CALLS == 0:
            found = _fingerprint_of_list(data) if isinstance(data, list | tuple) else take_fingerprint(data)
            key, count = found, count if found == key else 0
        self._fingerprints[id(data)] = key, count + 1
        return key


def kind_of_data(data: Any) -> Hashable:
    """Return type, shape and dtype, which similar data has in common."""
    if isinstance(data, list | tuple):
        return type(data), len(data), kind_of_data(data[0]) if data else None
    return type(data), tuple(getattr(data, "shape", ())), str(getattr(data, "dtype", ""))


def _fingerprint_of_list(values: Any) -> str:
    """Return a checksum of the first, the middle and the last item."""
    if not values:
        return ""
    items = values[0], values[len(values) // 2], values[-1]
    return f"{len(values)} {zlib.crc32(repr(items).encode()):08x}"


def _hashable(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value  # type: ignore[no-any-return]  # hash() has accepted it


class UploadPrefetch:
    """Emulates uploads that start one step early: each call starts an upload and returns the previous one."""

    def __init__(self, emulation: Emulation, target: TargetLine) -> None:
        self._emulation, self._target = emulation, target
        self._started: dict[Hashable, Any] = {}
        self.replaced = 0

    def upload(self, upload: Callable[[], Any], data: Any, start: Callable[[Callable[[], Any]], Any]) -> Any:
        """Return the previous upload of similar data. `start` starts this one and returns a function that gets it."""
        if self._emulation.kind is not EmulationKind.PREFETCH or not self._target.is_calling():
            return upload()
        key = kind_of_data(data)
        previous = self._started.get(key)
        self._started[key] = self._target.bypass(lambda: start(upload))
        self.replaced += previous is not None
        return (previous or self._started[key])()


class PreparedUploads:
    """Emulates uploads without host work: data that was prepared once replaces all similar data."""

    def __init__(self, emulation: Emulation, target: TargetLine) -> None:
        self._emulation, self._target = emulation, target
        self._prepared: dict[Hashable, Any] = {}  # None: `prepare` changes nothing
        self.replaced = 0

    def substitute(self, data: Any, prepare: Callable[[Any], Any]) -> Any:
        """Return the data to upload: the result of `prepare` for similar data, or the data itself."""
        kinds = (EmulationKind.LOCK, EmulationKind.NARROW)
        if self._emulation.kind not in kinds or not self._target.is_calling():
            return data
        key = kind_of_data(data)
        if key not in self._prepared:
            prepared = self._target.bypass(lambda: prepare(data))
            self._prepared[key] = None if prepared is data else prepared
        if self._prepared[key] is None:
            return data
        self.replaced += 1
        return self._prepared[key]


class SkippedReads:
    """Decides for every read-back and wait whether to skip it; a skipped read returns the last value."""

    def __init__(self, emulation: Emulation, target: TargetLine) -> None:
        self._emulation, self._target = emulation, target
        self._kept: dict[Hashable, Any] = {}
        self._calls: dict[Hashable, int] = {}
        self.replaced = 0

    def read(self, read: Callable[[], Any], api: str, source: Any) -> Any:
        """Return the value of `read`, or the value of the last read of something similar to `source`."""
        if self._emulation.kind is not EmulationKind.DEFER or not self._target.is_calling():
            return read()
        key = api, kind_of_data(source)
        if self._is_due(key):
            self._kept[key] = self._target.bypass(read)
        return self._kept[key]

    def wait(self, wait: Callable[[], Any], api: str, default: Any = None) -> Any:
        """Return the result of `wait`, or `default` if the wait is skipped."""
        if self._emulation.kind is not EmulationKind.SKIP or not self._target.is_calling():
            return wait()
        return self._target.bypass(wait) if self._is_due(api) else default

    def _is_due(self, key: Hashable) -> bool:
        """Whether this call is made: the first one, and then one in `every`."""
        count = self._calls[key] = self._calls.get(key, 0) + 1
        is_due = count == 1 or (bool(self._emulation.every) and count % self._emulation.every == 0)
        self.replaced += not is_due
        return is_due

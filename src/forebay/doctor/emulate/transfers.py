"""Emulation of fewer or faster transfers.

The classes reuse uploads, prepare them once or prefetch them, and skip read-backs and waits. Each class counts the
replaced calls in `replaced`.
"""

import zlib
from collections.abc import Callable, Collection, Hashable
from typing import Any

from forebay.doctor.capture.data_fingerprint import fingerprint
from forebay.doctor.emulate.target_line import TargetLine
from forebay.doctor.model.emulation import Emulation, EmulationKind

__all__ = ["PreparedUploads", "SkippedReads", "UploadPrefetch", "UploadReuse", "kind_of_data", "narrow"]

# A fingerprint takes longer than some steps, so it is not computed at every upload of an object.
EXAMINED_CALLS = 8  # after this many uploads of an object with equal fingerprints, fewer fingerprints are computed
EXAMINED_INTERVAL = 16  # then the fingerprint is computed at every 16th upload


class UploadReuse:
    """Replaces an upload by the result of an earlier upload.

    `resident` holds the ids of the arrays in resident batches.
    """

    def __init__(self, emulation: Emulation, target: TargetLine, resident: Collection[int]) -> None:
        self._emulation, self._target, self._resident = emulation, target, resident
        self._results: dict[Hashable, Any] = {}  # key of data and options -> result of the upload
        self._calls: dict[Hashable, int] = {}  # key -> number of uploads so far
        self._fingerprints: dict[int, tuple[str, int]] = {}  # id of an object -> fingerprint, calls since it changed
        self.replaced = 0

    def upload(
        self,
        run_upload: Callable[[], Any],
        data: Any,
        *options: Any,
        compute_fingerprint: Callable[[Any], str] = fingerprint,
        is_reusable: Callable[[Any], bool] = lambda result: True,
    ) -> Any:
        """Return an earlier result for equivalent data and options, or the result of `run_upload`.

        The emulation kind decides which data is equivalent; see `_key_of`. Only results for which `is_reusable` holds
        are reused. Every `Emulation.every`-th upload of equivalent data runs as written.
        """
        key = self._key_of(data, compute_fingerprint)
        if key is None:
            return run_upload()
        full_key = (key, *map(_to_hashable, options))
        call_number = self._calls[full_key] = self._calls.get(full_key, 0) + 1
        earlier = self._results.get(full_key)
        if (
            earlier is not None
            and is_reusable(earlier)
            and (not self._emulation.every or call_number % self._emulation.every)
        ):
            self.replaced += 1
            return earlier
        result = self._target.bypass(run_upload)
        if is_reusable(result):
            self._results[full_key] = result
        return result

    def should_replace(self, data: Any) -> bool:
        """Whether to replace an upload of this data by the current call.

        Uploads of resident arrays are replaced on every line, other uploads only on the target line.
        """
        if self._emulation.kind is EmulationKind.RESIDENT:
            return id(data) in self._resident
        kinds = (EmulationKind.REMEMBER, EmulationKind.REUSE)
        return self._emulation.kind in kinds and self._target.is_calling()

    def _key_of(self, data: Any, compute_fingerprint: Callable[[Any], str]) -> Hashable:
        """Return a key that equivalent data shares; None if the upload must run as written.

        RESIDENT: the same object. REUSE: the same type, shape and dtype. REMEMBER: the same fingerprint.
        """
        if not self.should_replace(data):
            return None
        if self._emulation.kind is EmulationKind.RESIDENT:
            return id(data)
        if self._emulation.kind is EmulationKind.REUSE:
            return kind_of_data(data)
        return self._cached_fingerprint(data, compute_fingerprint) or None

    def _cached_fingerprint(self, data: Any, compute_fingerprint: Callable[[Any], str]) -> str:
        """Return the fingerprint of the data; compute it only for some of the calls."""
        key, count = self._fingerprints.get(id(data), ("", 0))
        if count < EXAMINED_CALLS or count % EXAMINED_INTERVAL == 0:
            new_key = _fingerprint_of_list(data) if isinstance(data, list | tuple) else compute_fingerprint(data)
            key, count = new_key, count if new_key == key else 0
        self._fingerprints[id(data)] = key, count + 1
        return key


def kind_of_data(data: Any) -> Hashable:
    """Return a key that similar data shares: type, shape and dtype.

    For a list, the key is the type, the length and the key of the first item.
    """
    if isinstance(data, list | tuple):
        return type(data), len(data), kind_of_data(data[0]) if data else None
    return type(data), tuple(getattr(data, "shape", ())), str(getattr(data, "dtype", ""))


def _fingerprint_of_list(values: Any) -> str:
    """Return length and checksum of a list as text; "" for an empty list.

    The checksum covers the first, the middle and the last item.
    """
    if not values:
        return ""
    items = values[0], values[len(values) // 2], values[-1]
    return f"{len(values)} {zlib.crc32(repr(items).encode()):08x}"


def _to_hashable(value: Any) -> Hashable:
    """Return the value, or its `repr` if it is not hashable."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value  # type: ignore[no-any-return]  # hash() has accepted it


class UploadPrefetch:
    """Starts uploads one step early: each call starts an upload and returns the previous upload."""

    def __init__(self, emulation: Emulation, target: TargetLine) -> None:
        self._emulation, self._target = emulation, target
        self._started: dict[Hashable, Any] = {}  # kind of data -> function that returns the started upload
        self.replaced = 0

    def upload(self, run_upload: Callable[[], Any], data: Any, start_upload: Callable[[Callable[[], Any]], Any]) -> Any:
        """Start this upload and return the previous upload of similar data.

        The first call for similar data returns its own upload. On other lines and in other emulations, return
        `run_upload()`. `start_upload(run_upload)` starts the upload and returns a function that returns its result.
        """
        if self._emulation.kind is not EmulationKind.PREFETCH or not self._target.is_calling():
            return run_upload()
        key = kind_of_data(data)
        previous = self._started.get(key)
        self._started[key] = self._target.bypass(lambda: start_upload(run_upload))
        self.replaced += previous is not None
        return (previous or self._started[key])()


class PreparedUploads:
    """Avoids host work before uploads: data that was prepared once replaces all similar data.

    To prepare means to page-lock or to narrow.
    """

    def __init__(self, emulation: Emulation, target: TargetLine) -> None:
        self._emulation, self._target = emulation, target
        self._prepared: dict[Hashable, Any] = {}  # kind of data -> prepared data; None: `prepare` changes nothing
        self.replaced = 0

    def substitute(self, data: Any, prepare: Callable[[Any], Any]) -> Any:
        """Return the data to upload: similar data that was prepared, or the data itself."""
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


def narrow(data: Any) -> Any:
    """Return float64 data as float32, other data unchanged."""
    return data.astype("float32") if data.dtype == "float64" else data


class SkippedReads:
    """Skips read-backs and waits. A skipped read-back returns the last value of a similar array."""

    def __init__(self, emulation: Emulation, target: TargetLine) -> None:
        self._emulation, self._target = emulation, target
        self._results: dict[Hashable, Any] = {}  # API and kind of data -> last value
        self._calls: dict[Hashable, int] = {}  # key of `_is_due` -> number of calls so far
        self.replaced = 0

    def read(self, run_read: Callable[[], Any], api: str, array: Any) -> Any:
        """Return the value of `run_read`, or the last value of a similar array."""
        if self._emulation.kind is not EmulationKind.DEFER or not self._target.is_calling():
            return run_read()
        key = api, kind_of_data(array)
        if self._is_due(key, has_value=key in self._results):
            self._results[key] = self._target.bypass(run_read)
        return self._results[key]

    def wait(self, run_wait: Callable[[], Any], api: str, default: Any = None) -> Any:
        """Return the result of `run_wait`, or `default` if the wait is skipped."""
        if self._emulation.kind is not EmulationKind.SKIP or not self._target.is_calling():
            return run_wait()
        return self._target.bypass(run_wait) if self._is_due(api) else default

    def _is_due(self, key: Hashable, *, has_value: bool = True) -> bool:
        """Whether this call runs as written: the first call, and every `Emulation.every`-th call.

        Calls without a last value also run as written: the first call has failed, or another thread runs it now. Count
        the call, and count it in `replaced` if it does not run as written.
        """
        count = self._calls[key] = self._calls.get(key, 0) + 1
        is_due = not has_value or count == 1 or (bool(self._emulation.every) and count % self._emulation.every == 0)
        self.replaced += not is_due
        return is_due

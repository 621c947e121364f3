"""Reads of byte ranges, from a cache tier or from the store.

Groups that need the same range share one read.
"""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from forebay.core.decision import Decision
from forebay.core.spec import Array, format_nbytes
from forebay.errors import SourceError
from forebay.sources.objects.cache_tiers import CacheTier
from forebay.sources.objects.daemon_threads import DaemonThreads
from forebay.sources.objects.store import ObjectStore
from forebay.sources.objects.stored_object import ByteRange, StoredObject

__all__ = ["HeldRange", "RangeReader"]


@dataclass(slots=True)
class HeldRange:
    """A range in memory or being read.

    It stays until its last user releases it.
    """

    byte_range: ByteRange
    future: "Future[Array] | None" = None  # None if a cache tier had the bytes at once
    data: Array | None = None  # set when the bytes have arrived
    users: int = 1
    nbytes: int = 0  # memory that this range takes outside the cache tiers

    def array(self) -> Array:
        """Return the bytes; wait for them if they have not arrived."""
        if self.data is not None:
            return self.data
        assert self.future is not None
        try:
            return self.future.result()
        except CancelledError:
            raise SourceError("the source was closed during a read.") from None


class RangeReader:
    """Reads ranges and holds them while groups need them.

    This is not a cache: a range is dropped with its last user, and the prefetcher keeps the sum within its budget.
    Blocks that should stay go to a cache tier.
    """

    def __init__(
        self, store: ObjectStore, objects: Sequence[StoredObject], tiers: Sequence[CacheTier], connections: int
    ) -> None:
        self._store, self._objects, self._tiers = store, objects, tiers
        self.connections, self.counters = connections, store.counters
        self._threads = DaemonThreads(connections)
        self._held: dict[ByteRange, HeldRange] = {}
        self._held_nbytes = 0
        self.changed = threading.Condition()  # notified when memory is released

    @property
    def held_nbytes(self) -> int:
        """Memory of all ranges outside the cache tiers, also those being read."""
        return self._held_nbytes

    @property
    def free_tier_nbytes(self) -> int:
        """Bytes that the cache tiers may still take."""
        return sum(tier.free_nbytes for tier in self._tiers)

    def has(self, byte_range: ByteRange) -> bool:
        """Return whether a range is held or cached, so needs no request."""
        stored = self._objects[byte_range.object_index]
        return byte_range in self._held or any(tier.contains(stored, byte_range) for tier in self._tiers)

    def hold(self, ranges: Sequence[ByteRange]) -> list[HeldRange]:
        """Hold ranges. Request those that no group holds yet."""
        with self.changed:
            return [self._hold(byte_range) for byte_range in ranges]

    def release(self, ranges: Iterable[HeldRange]) -> None:
        """Release ranges that were held."""
        with self.changed:
            for held in ranges:
                self._release(held)

    def decisions(self) -> list[Decision]:
        """Return the state of the tiers, the transferred bytes and the retries, for `explain()`."""
        found = [decision for tier in self._tiers for decision in tier.decisions()]
        counts, causes = self.counters.counts(), self.counters.retry_causes()
        fetched, cached = format_nbytes(counts["fetched_nbytes"]), format_nbytes(counts["cached_nbytes"])
        why = f"in {counts['requests']} requests; {cached} of blocks came from the disk cache"
        found.append(Decision("traffic", f"{fetched} fetched", why))
        if causes:
            why = ", ".join(f"{cause} ({count} times)" for cause, count in causes.items())
            found.append(Decision("retries", str(counts["retries"]), f"after {why}"))
        return found

    def close(self) -> None:
        """Cancel requests that have not begun, and close the tiers."""
        self._store.close()
        self._threads.close()
        for tier in self._tiers:
            tier.close()

    def _hold(self, byte_range: ByteRange) -> HeldRange:
        for tier in self._tiers:
            data = tier.get(byte_range)
            if data is not None:
                return HeldRange(byte_range, data=data)
        held = self._held.get(byte_range)
        if held is not None:
            held.users += 1
            return held
        held = self._held[byte_range] = HeldRange(byte_range, nbytes=byte_range.nbytes)
        self._held_nbytes += held.nbytes
        held.future = self._threads.submit(partial(self._load, held))
        return held

    def _release(self, held: HeldRange) -> None:
        if held.future is None:
            return
        held.users -= 1
        if held.users == 0:
            del self._held[held.byte_range]
            held.future.cancel()  # has no effect if the request has begun
            self._drop_memory(held)

    def _load(self, held: HeldRange) -> Any:
        byte_range = held.byte_range
        stored = self._objects[byte_range.object_index]
        tiers = self._tiers if byte_range.cacheable else ()
        for tier in tiers:
            cached = tier.load(stored, byte_range)
            if cached is not None:
                self.counters.add(cached_nbytes=byte_range.nbytes)
                return self._move_to_tier(held, cached)
        data = self._store.read(stored, byte_range.start, byte_range.stop)
        for tier in tiers:
            cached = tier.put(stored, byte_range, data)
            if cached is not None:
                return self._move_to_tier(held, cached)
        held.data = np.frombuffer(data, np.uint8)
        return held.data

    def _move_to_tier(self, held: HeldRange, cached: Array) -> Array:
        """Replace the memory of a held range by that of the tier."""
        held.data = cached
        with self.changed:
            self._drop_memory(held)
        return cached

    def _drop_memory(self, held: HeldRange) -> None:
        self._held_nbytes -= held.nbytes
        held.nbytes = 0
        self.changed.notify_all()

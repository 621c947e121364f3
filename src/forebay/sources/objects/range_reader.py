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
from forebay.sources.objects.retry import RequestCounters, wait_for_result
from forebay.sources.objects.store import ObjectStore
from forebay.sources.objects.stored_object import ByteRange, StoredObject

__all__ = ["HeldRange", "RangeReader"]


@dataclass(slots=True)
class HeldRange:
    """A byte range that is in memory, or that a thread is reading.

    It stays in memory until all groups that use it have released it.
    """

    byte_range: ByteRange
    counters: RequestCounters  # of the source
    future: "Future[Array] | None" = None  # None if a cache tier already had the bytes in memory
    data: Array | None = None  # set when the bytes have arrived
    users: int = 1  # groups that use the range
    nbytes: int = 0  # bytes of memory outside the cache tiers

    def array(self) -> Array:
        """Return the bytes; wait until they have arrived."""
        if self.data is not None:
            return self.data
        assert self.future is not None
        try:
            return wait_for_result(self.future, self.counters)
        except CancelledError:
            raise SourceError(
                "the source was closed during a read. Create the pipeline again to read from it."
            ) from None


class RangeReader:
    """Reads byte ranges and holds them in memory while groups use them.

    To hold a range means to read it, and to keep it in memory until the last group releases it. The prefetcher limits
    the memory of held ranges. Cache tiers keep whole blocks for longer. The reader looks for a block in one tier after
    the other, and reads it from the store if no tier has it.
    """

    def __init__(
        self, store: ObjectStore, objects: Sequence[StoredObject], tiers: Sequence[CacheTier], connections: int
    ) -> None:
        self._store, self._objects, self._tiers = store, objects, tiers
        self.connections, self.counters = connections, store.counters
        self._threads = DaemonThreads(connections)
        self._held_ranges: dict[ByteRange, HeldRange] = {}
        self._held_nbytes = 0
        self.changed = threading.Condition()  # guards held ranges and prefetched groups; notified when these change

    @property
    def held_nbytes(self) -> int:
        """Bytes of all held ranges outside the cache tiers, including ranges in progress."""
        return self._held_nbytes

    @property
    def free_tier_nbytes(self) -> int:
        """Bytes that the cache tiers can still store."""
        return sum(tier.free_nbytes for tier in self._tiers)

    def has(self, byte_range: ByteRange) -> bool:
        """Return whether a range is held or, as far as the tiers know, cached."""
        stored_object = self._objects[byte_range.object_index]
        return byte_range in self._held_ranges or any(tier.contains(stored_object, byte_range) for tier in self._tiers)

    def hold(self, ranges: Sequence[ByteRange]) -> list[HeldRange]:
        """Hold ranges, and start to read the ranges that are not in memory."""
        with self.changed:
            return [self._hold_range(byte_range) for byte_range in ranges]

    def release(self, ranges: Iterable[HeldRange]) -> None:
        """Release ranges, and drop the ranges that no other group uses."""
        with self.changed:
            for held_range in ranges:
                self._release_range(held_range)

    def decisions(self) -> list[Decision]:
        """Describe the tiers, the traffic and the retries for `explain()`."""
        decisions = [decision for tier in self._tiers for decision in tier.decisions()]
        counts, causes = self.counters.counts(), self.counters.retry_causes()
        fetched_size, cached_size = format_nbytes(counts["fetched_nbytes"]), format_nbytes(counts["cached_nbytes"])
        reason = f"in {counts['requests']} requests; {cached_size} of blocks came from the disk cache"
        decisions.append(Decision("traffic", f"{fetched_size} fetched", reason))
        if causes:
            reason = ", ".join(f"{cause} ({count} times)" for cause, count in causes.items())
            decisions.append(Decision("retries", str(counts["retries"]), f"after {reason}"))
        return decisions

    def close(self) -> None:
        """Cancel queued reads, end the pauses between attempts and close the tiers."""
        self._store.close()
        self._threads.close()
        for tier in self._tiers:
            tier.close()

    def _hold_range(self, byte_range: ByteRange) -> HeldRange:
        for tier in self._tiers:
            data = tier.get_from_memory(byte_range)
            if data is not None:
                return HeldRange(byte_range, self.counters, data=data)
        held_range = self._held_ranges.get(byte_range)
        if held_range is not None:
            held_range.users += 1
            return held_range
        held_range = self._held_ranges[byte_range] = HeldRange(byte_range, self.counters, nbytes=byte_range.nbytes)
        self._held_nbytes += held_range.nbytes
        held_range.future = self._threads.submit(partial(self._read_range, held_range))
        return held_range

    def _release_range(self, held_range: HeldRange) -> None:
        if held_range.future is None:
            return
        held_range.users -= 1
        if held_range.users == 0:
            del self._held_ranges[held_range.byte_range]
            held_range.future.cancel()  # has no effect if the read has begun
            self._drop_memory(held_range)

    def _read_range(self, held_range: HeldRange) -> Any:
        byte_range = held_range.byte_range
        stored_object = self._objects[byte_range.object_index]
        tiers = self._tiers if byte_range.cacheable else ()
        for tier in tiers:
            cached = tier.load(stored_object, byte_range)
            if cached is not None:
                self.counters.add(cached_nbytes=byte_range.nbytes)
                return self._move_to_tier(held_range, cached)
        data = self._store.read(stored_object, byte_range.start, byte_range.stop)
        for tier in tiers:
            cached = tier.put(stored_object, byte_range, data)
            if cached is not None:
                return self._move_to_tier(held_range, cached)
        held_range.data = np.frombuffer(data, np.uint8)
        return held_range.data

    def _move_to_tier(self, held_range: HeldRange, cached: Array) -> Array:
        """Use the tier's memory for a held range and drop the range's own memory."""
        held_range.data = cached
        with self.changed:
            self._drop_memory(held_range)
        return cached

    def _drop_memory(self, held_range: HeldRange) -> None:
        self._held_nbytes -= held_range.nbytes
        held_range.nbytes = 0
        self.changed.notify_all()

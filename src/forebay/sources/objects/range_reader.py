"""Ranges of objects, each read once however many wait for it: from a tier, what is under way, or the store."""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from forebay.core.decision import Reason
from forebay.core.spec import Array, format_nbytes
from forebay.errors import SourceError
from forebay.sources.objects.cache_tiers import Tier
from forebay.sources.objects.daemon_threads import Workers
from forebay.sources.objects.store import Store
from forebay.sources.objects.stored_object import Piece, StoredObject

__all__ = ["Held", "Reader"]


@dataclass(slots=True)
class Held:
    """A range that is at hand or on its way, and stays until it is released as often as it was held."""

    piece: Piece
    future: "Future[Array] | None" = None
    ready: Array | None = None  # in a tier, or as soon as it is here
    users: int = 1
    nbytes: int = 0  # of memory that it takes outside tiers

    def array(self) -> Array:
        """Its bytes; waits for them."""
        if self.ready is not None:
            return self.ready
        assert self.future is not None
        try:
            return self.future.result()
        except CancelledError:
            raise SourceError("these objects were closed while they were being read.") from None


class Reader:
    """Holds ranges while anybody needs them."""

    def __init__(self, store: Store, objects: Sequence[StoredObject], tiers: Sequence[Tier], connections: int) -> None:
        self._store, self._objects, self._tiers = store, objects, tiers
        self.connections, self.traffic = connections, store.traffic
        self._workers = Workers(connections)
        self._held: dict[Piece, Held] = {}
        self._nbytes = 0
        self.changed = threading.Condition()  # notified as memory is given back

    @property
    def nbytes(self) -> int:
        """Memory that ranges take outside tiers, those on their way included."""
        return self._nbytes

    @property
    def room_nbytes(self) -> int:
        """How much more the tiers may hold."""
        return sum(tier.room_nbytes for tier in self._tiers)

    def has(self, piece: Piece) -> bool:
        """Whether a range need not be read from the store: somebody holds it, or a tier has it."""
        stored = self._objects[piece.number]
        return piece in self._held or any(tier.has(stored, piece) for tier in self._tiers)

    def hold(self, pieces: Sequence[Piece]) -> list[Held]:
        """Some ranges, asked for now where nobody did before."""
        with self.changed:
            return [self._hold(piece) for piece in pieces]

    def release(self, ranges: Iterable[Held]) -> None:
        """Give ranges back."""
        with self.changed:
            for held in ranges:
                self._release(held)

    def reasons(self) -> list[Reason]:
        """How reading went so far: the tiers, the traffic, and every retry."""
        told = [reason for tier in self._tiers for reason in tier.reasons()]
        counts, causes = self.traffic.counts(), self.traffic.causes()
        fetched, cached = format_nbytes(counts["fetched_nbytes"]), format_nbytes(counts["cached_nbytes"])
        told.append(
            Reason(
                "traffic", f"{fetched} fetched", f"in {counts['requests']} requests; {cached} of blocks were on disk"
            )
        )
        if causes:
            why = ", ".join(f"{cause} ({count} times)" for cause, count in causes.items())
            told.append(Reason("retries", str(counts["retries"]), f"after {why}"))
        return told

    def close(self) -> None:
        """Cancel what was not begun, and let go of the tiers."""
        self._store.close()
        self._workers.close()
        for tier in self._tiers:
            tier.close()

    def _hold(self, piece: Piece) -> Held:
        for tier in self._tiers:
            found = tier.ready(piece)
            if found is not None:
                return Held(piece, ready=found)
        held = self._held.get(piece)
        if held is not None:
            held.users += 1
            return held
        held = self._held[piece] = Held(piece, nbytes=piece.nbytes)
        self._nbytes += held.nbytes
        held.future = self._workers.submit(partial(self._load, held))
        return held

    def _release(self, held: Held) -> None:
        if held.future is None:
            return
        held.users -= 1
        if held.users == 0:
            del self._held[held.piece]
            held.future.cancel()  # if it has not begun
            self._forget(held)

    def _load(self, held: Held) -> Any:
        piece = held.piece
        stored = self._objects[piece.number]
        tiers = self._tiers if piece.kept else ()
        for tier in tiers:
            found = tier.find(stored, piece)
            if found is not None:
                self.traffic.add(cached_nbytes=piece.nbytes)
                return self._landed(held, found)
        data = self._store.read(stored, piece.start, piece.stop)
        for tier in tiers:
            kept = tier.keep(stored, piece, data)
            if kept is not None:
                return self._landed(held, kept)
        held.ready = np.frombuffer(data, np.uint8)
        return held.ready

    def _landed(self, held: Held, block: Array) -> Array:
        """The range is a tier's from now on, and takes no memory of ours."""
        held.ready = block
        with self.changed:
            self._forget(held)
        return block

    def _forget(self, held: Held) -> None:
        self._nbytes -= held.nbytes
        held.nbytes = 0
        self.changed.notify_all()

"""What to read for some ranges of bytes: sorted, widened to what a disk can read, merged where they meet. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forebay.sources.direct.address_space import Addresses

__all__ = ["Requests", "Runs", "merge"]

REQUEST_NBYTES = 1 << 20  # a disk is as fast with pieces of this size as with larger ones, and several go on at once
LITTLE_NBYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Requests:
    """Pieces to read, each to its place in memory."""

    starts: Addresses
    nbytes: Addresses
    places: Addresses

    @classmethod
    def all_of(cls, parts: "Sequence[Requests]") -> "Requests":
        starts, nbytes = [part.starts for part in parts], [part.nbytes for part in parts]
        return cls(np.concatenate(starts), np.concatenate(nbytes), np.concatenate([part.places for part in parts]))

    def only(self, which: Addresses) -> "Requests":
        return Requests(self.starts[which], self.nbytes[which], self.places[which])

    def after(self, done: Addresses) -> "Requests":
        """What is left of each when so many bytes of it are done."""
        return Requests(self.starts + done, self.nbytes - done, self.places + done)


@dataclass(frozen=True, slots=True)
class Runs:
    """Stretches of addresses without a gap, and where in memory each begins: starts rise, and so do ends.

    Two may overlap, as those of neighbours do that were widened to what a disk can read: what lies in both is in both.
    """

    starts: Addresses
    nbytes: Addresses
    places: Addresses

    @classmethod
    def all_of(cls, parts: "Sequence[Runs]") -> "Runs":
        """All of these; a run that lies inside another one is left out, or it would be found in its place."""
        starts, nbytes = (np.concatenate([getattr(part, name) for part in parts]) for name in ("starts", "nbytes"))
        order = np.lexsort((nbytes, starts))
        ends = (starts + nbytes)[order]
        order = order[np.diff(np.maximum.accumulate(ends), prepend=-1) > 0]
        return cls(starts[order], nbytes[order], np.concatenate([part.places for part in parts])[order])

    @property
    def total_nbytes(self) -> int:
        """Memory they take, one after the other."""
        return int(self.nbytes.sum())

    def locate(self, addresses: Addresses) -> Addresses:
        """Where in memory these addresses are: each lies in a run, and of several in the one that goes on longest."""
        which = np.searchsorted(self.starts, addresses, side="right") - 1
        found: Addresses = addresses + (self.places - self.starts)[which]
        return found

    def requests(self) -> Requests:
        """The runs, cut into requests; what little is left of a run goes with its last one."""
        counts = np.maximum(-(-(self.nbytes - LITTLE_NBYTES) // REQUEST_NBYTES), 1)
        which = np.repeat(np.arange(len(counts)), counts)
        within = (np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)) * REQUEST_NBYTES
        left = self.nbytes[which] - within
        nbytes = np.where(left <= REQUEST_NBYTES + LITTLE_NBYTES, left, REQUEST_NBYTES)
        return Requests(self.starts[which] + within, nbytes, self.places[which] + within)


def merge(starts: Addresses, nbytes: Addresses, *, alignment: int, gap: int = 0) -> Runs:
    """The fewest runs that cover all ranges and begin and end at multiples of the alignment.

    Ranges that are no further apart than `gap` are read as one, with what lies between them.
    """
    order = np.argsort(starts, kind="stable")
    first = starts[order] // alignment * alignment
    last = np.maximum.accumulate(-(-(starts + nbytes)[order] // alignment) * alignment)
    begins = np.concatenate([[True], first[1:] > last[:-1] + gap])
    ends = np.concatenate([begins[1:], [True]])
    lengths = last[ends] - first[begins]
    return Runs(first[begins], lengths, np.cumsum(lengths) - lengths)

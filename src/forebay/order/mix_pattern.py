"""The pattern of an interleaved order: which part comes at each position.

The weights 7 and 3 give a period of 10 positions: 7 of part 0 and 3 of part 1. Every period has these counts. So a
table of some periods and a division give the part at any position, and the number of earlier positions of this part. In
this module, a slot is one entry of this table.

The even pattern spreads each part evenly over the period. If all periods were equal, a shard could receive only some of
the parts: with two parts of equal weight and two shards, each shard would receive one part. Therefore the even pattern
rotates its periods by random distances. A shuffled pattern has a random order in each period instead, and each epoch
begins with another period of the table.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

from forebay.core.rows import split_by_part
from forebay.core.spec import Array
from forebay.order.device_steps import DeviceSteps, Mix, join_steps
from forebay.order.permutation import Positions

__all__ = ["MAX_PERIOD", "MixPattern", "even_pattern", "integer_weights", "mix_steps", "shuffled_pattern"]

MAX_PERIOD = 10_000  # positions; limits the size of tables, and so the precision of weights
_TABLE_SLOTS = 1 << 16  # largest number of slots in the table of a pattern; the pattern repeats its table
_ROTATION_KEY = 0  # key of the random rotations, which are the same in every order


def integer_weights(weights: Sequence[float]) -> tuple[int, ...]:
    """Return whole numbers in the proportions of the weights.

    The sum of the numbers is at most MAX_PERIOD. The function replaces each weight by the nearest fraction with a
    denominator of at most MAX_PERIOD: 0.7 becomes 7/10. If a fraction is 0, or if the sum of whole numbers in these
    proportions would be too large, it rounds the weights to numbers of at least 1 instead.

    >>> integer_weights([0.7, 0.3]), integer_weights([4, 2]), integer_weights([1 / 3, 2 / 3])
    ((7, 3), (2, 1), (1, 2))
    """
    exact = [Fraction(weight) for weight in weights]
    near = [weight.limit_denominator(MAX_PERIOD) for weight in exact]
    if all(near):
        multiple = math.lcm(*(weight.denominator for weight in near))
        numbers = [int(weight * multiple) for weight in near]
        divisor = math.gcd(*numbers)
        if sum(numbers) // divisor <= MAX_PERIOD:
            return tuple(number // divisor for number in numbers)
    return _round_to_period(exact)


def _round_to_period(weights: Sequence[Fraction]) -> tuple[int, ...]:
    """Return whole numbers in about the proportions of the weights.

    Each number is at least 1, and the sum of the numbers is at most MAX_PERIOD.
    """
    total = sum(weights)
    wanted = [float(weight * MAX_PERIOD / total) for weight in weights]
    numbers = [max(1, math.floor(share)) for share in wanted]
    by_excess = sorted(range(len(numbers)), key=lambda part: numbers[part] - wanted[part])
    for part in by_excess[: max(0, MAX_PERIOD - sum(numbers))]:
        numbers[part] += 1
    for _ in range(sum(numbers) - MAX_PERIOD):  # shares below 1 were rounded up to 1, so reduce larger numbers
        larger = [part for part, number in enumerate(numbers) if number > 1]
        numbers[max(larger, key=lambda part: numbers[part] - wanted[part])] -= 1
    divisor = math.gcd(*numbers)
    return tuple(number // divisor for number in numbers)


class MixPattern:
    """The part at each position, as a table that repeats forever."""

    def __init__(self, parts: Array, part_count: int) -> None:
        self._parts = parts.astype(np.min_scalar_type(part_count - 1))
        self._counts = np.bincount(parts, minlength=part_count)  # slots of each part in the table
        self._slots_by_part = np.argsort(self._parts, kind="stable")
        self._firsts = np.cumsum(self._counts) - self._counts  # first index of each part in `_slots_by_part`
        self._ranks = np.empty(len(parts), np.int64)  # how many earlier slots of the table have the same part
        self._ranks[self._slots_by_part] = np.arange(len(parts)) - np.repeat(self._firsts, self._counts)

    def __len__(self) -> int:
        """Return the number of slots in the table."""
        return len(self._parts)

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of slots of each part in the table."""
        return tuple(self._counts.tolist())

    @cached_property
    def packed_slots(self) -> Array:
        """The table for a device, one uint64 for each slot.

        The upper 32 bits are the part. The lower 32 bits are the number of earlier slots of this part.
        """
        packed: Array = self._parts.astype(np.uint64) << np.uint64(32) | self._ranks.astype(np.uint64)
        return packed

    def split(self, positions: Positions, *, skipped: int = 0) -> Iterator[tuple[int, Array, Positions]]:
        """Yield (part, its indices in `positions`, positions inside the part) for each part.

        A position inside a part is the number of earlier positions with this part. Position 0 is the position after the
        first `skipped` positions of the pattern.
        """
        count = len(positions)
        if count and int(positions[-1]) - int(positions[0]) == count - 1 and (positions[1:] > positions[:-1]).all():
            yield from self._split_consecutive(int(positions[0]), count, skipped)
            return
        length = len(self._parts)
        repetitions = (positions + skipped) // length
        slots = repetitions * -length
        slots += positions
        slots += skipped
        for part, selection in split_by_part(self._parts.take(slots), len(self._counts)):
            inner = repetitions.take(selection)
            inner *= self._counts[part]
            inner += self._ranks.take(slots.take(selection))
            inner -= self.count_before(part, skipped)
            yield part, selection, inner

    def _split_consecutive(self, start: int, count: int, skipped: int) -> Iterator[tuple[int, Array, Positions]]:
        """Do the work of `split` for `count` consecutive positions, in less time.

        The slots of a part in the table are known. They occur in ascending order, so the positions inside the part are
        consecutive.
        """
        length, first = len(self._parts), start + skipped
        cuts = [first, *range((first // length + 1) * length, first + count, length), first + count]
        for part in range(len(self._counts)):
            own_slots, runs = self._own_slots(part), []
            for run_start, run_stop in pairwise(cuts):  # each run is inside of one repetition of the table
                shift = run_start // length * length
                low, high = own_slots.searchsorted((run_start - shift, run_stop - shift)).tolist()
                runs.append(own_slots[low:high] + (shift - first))
            selection = np.concatenate(runs)
            if len(selection):
                earlier = self.count_before(part, first) - self.count_before(part, skipped)
                yield part, selection, np.arange(earlier, earlier + len(selection), dtype=np.int64)

    def position_of(self, part: int, occurrence: int) -> int:
        """Return the position at which a part occurs after `occurrence` earlier occurrences."""
        repetitions, rank = divmod(occurrence, int(self._counts[part]))
        return repetitions * len(self._parts) + int(self._own_slots(part)[rank])

    def count_before(self, part: int, position: int) -> int:
        """Return how many positions before `position` have this part."""
        repetitions, slots = divmod(position, len(self._parts))
        return repetitions * int(self._counts[part]) + int(self._own_slots(part).searchsorted(slots))

    def _own_slots(self, part: int) -> Array:
        """Return the slots of a part, in ascending order."""
        first = self._firsts[part]
        return self._slots_by_part[first : first + self._counts[part]]


def mix_steps(pattern: MixPattern, parts: Sequence[DeviceSteps | None]) -> DeviceSteps | None:
    """Return a `Mix` of these parts, as the only step of a list.

    Return None if a part is None, or if there are too many steps for a device.
    """
    known = tuple(part for part in parts if part is not None)
    return join_steps([Mix(pattern.packed_slots, pattern.counts, known) if len(known) == len(parts) else None], ())


@lru_cache(maxsize=32)
def even_pattern(weights: tuple[int, ...]) -> MixPattern:
    """Return the pattern that spreads the parts evenly over each of its rotated periods."""
    period = _even_period(weights)
    shifts = _random_numbers(_ROTATION_KEY, len(period), 1) % np.uint64(len(period))
    shifts[0] = 0
    slots = (np.arange(len(period)) + shifts.astype(np.int64)) % len(period)
    return MixPattern(period[slots].reshape(-1), len(weights))


@lru_cache(maxsize=32)
def shuffled_pattern(weights: tuple[int, ...], key: int) -> MixPattern:
    """Return the pattern whose periods have random orders, which a key selects."""
    period = _even_period(weights)
    slots = np.argsort(_random_numbers(key, len(period), len(period)), axis=1, kind="stable")
    return MixPattern(period[slots].reshape(-1), len(weights))


def _random_numbers(key: int, period: int, count: int) -> Array:
    """Return `count` random numbers for each period of a table, as one row per period."""
    return np.random.Philox(key=key).random_raw((max(1, _TABLE_SLOTS // period), count))


def _even_period(weights: tuple[int, ...]) -> Array:
    """Return the part at each position of a period.

    A part with the weight w occurs for the k-th time, from 0 on, after about (k + 1/2) / w of the period.
    """
    places = np.concatenate([(2 * np.arange(weight) + 1) / (2 * weight) for weight in weights])
    return np.repeat(np.arange(len(weights)), weights)[np.argsort(places, kind="stable")]

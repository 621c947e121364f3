"""Device steps: how a device computes the row numbers of an order.

With device steps, the host need not upload row numbers. This module is pure: it uses no thread, no clock and no device.

A thread of the device begins with a number, a position of the order, and runs the steps one after the other. Each step
replaces the number by its result. A `Branch` or a `Mix` is the last step of its list: it continues with the steps of
one of several parts. The number after the last step is the row number.

The constants of a step may change from epoch to epoch. Its tables may not change, because the device keeps them as long
as the feed is open.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from forebay.core.spec import Array
from forebay.order.permutation import Permutation, PermutationParams

__all__ = [
    "MAX_DEVICE_PARTS",
    "MAX_DEVICE_STEPS",
    "Add",
    "Branch",
    "DeviceStep",
    "DeviceSteps",
    "DrawAlias",
    "Lookup",
    "Mix",
    "Permute",
    "add_after",
    "branch_steps",
    "count_steps",
    "join_steps",
    "permutation_step",
    "step_tables",
]

MAX_DEVICE_PARTS = 16  # passes of a repeated order; with more passes, the host computes the row numbers
MAX_DEVICE_STEPS = 128  # instructions of one order (`count_steps`); with more, the host computes the row numbers


@dataclass(frozen=True, slots=True)
class Add:
    """Add an offset, which may be negative, to the number."""

    offset: int


@dataclass(frozen=True, slots=True)
class Permute:
    """Apply a permutation that needs no table."""

    params: PermutationParams


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """Replace the number n by entry n of a table of 32-bit or 64-bit integers."""

    table: Array = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class DrawAlias:
    """Draw from an alias table (`order/sampling.py`), with the random bits of the number."""

    entries: Array = field(repr=False)  # uint64: alias in the upper 32 bits, threshold in the lower 32 bits
    bucket_bits: int  # the table has 2**bucket_bits buckets
    key: int  # selects the random bits, together with the number


@dataclass(frozen=True, slots=True)
class Branch:
    """Continue with the first part whose `stop` is above the number.

    First subtract the `start` of this part, which may be negative, from the number.
    """

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    parts: tuple["DeviceSteps", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """Continue with the part that a pattern has at this position (`order/mix_pattern.py`).

    Replace the position by the number of earlier positions with this part.
    """

    # The table of the pattern, which repeats forever. Each entry is a uint64: the part in the upper 32 bits, and the
    # number of earlier entries of this part in the lower 32 bits.
    slots: Array = field(repr=False)
    counts: tuple[int, ...]  # number of entries of each part
    parts: tuple["DeviceSteps", ...]


DeviceStep: TypeAlias = Add | Permute | Lookup | DrawAlias | Branch | Mix
DeviceSteps: TypeAlias = tuple[DeviceStep, ...]


def permutation_step(permutation: Permutation) -> Permute | None:
    """Return the step that applies a permutation; None if the permutation is a table."""
    params = permutation.permutation_params
    return None if params is None else Permute(params)


def join_steps(first: Sequence[DeviceStep | None], then: DeviceSteps | None) -> DeviceSteps | None:
    """Return both lists of steps as one.

    Return None if `then` or a step in `first` is None, or if the steps need more than `MAX_DEVICE_STEPS` instructions.
    """
    known = [step for step in first if step is not None]
    if then is None or len(known) < len(first):
        return None
    steps = (*known, *then)
    return steps if count_steps(steps) <= MAX_DEVICE_STEPS else None


def branch_steps(
    starts: Sequence[int], stops: Sequence[int], parts: Sequence[DeviceSteps | None]
) -> DeviceSteps | None:
    """Return a `Branch` to these parts, as the only step of a list.

    Return None if a part is None, or if the steps need more than `MAX_DEVICE_STEPS` instructions.
    """
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return join_steps([Branch(tuple(starts), tuple(stops), tuple(known))], ())


def add_after(steps: DeviceSteps, offset: int) -> DeviceSteps:
    """Return the steps with an addition after the last step, in all branches."""
    if steps and isinstance(steps[-1], Branch | Mix):
        parts = tuple(add_after(part, offset) for part in steps[-1].parts)
        return *steps[:-1], replace(steps[-1], parts=parts)
    return *steps, Add(offset)


def count_steps(steps: DeviceSteps) -> int:
    """Return the number of instructions for these steps (`engines/cuda/order_program.py`)."""
    count = 1  # the instruction that ends the list
    for step in steps:
        if isinstance(step, Branch | Mix):
            count += len(step.parts) + sum(map(count_steps, step.parts))
        count += 1
    return count


def step_tables(steps: DeviceSteps) -> Iterator[Array]:
    """Yield the tables that the steps read."""
    for step in steps:
        if isinstance(step, Lookup):
            yield step.table
        elif isinstance(step, DrawAlias):
            yield step.entries
        elif isinstance(step, Mix):
            yield step.slots
        if isinstance(step, Branch | Mix):
            for part in step.parts:
                yield from step_tables(part)

"""Order programs: the instructions with which the kernel `compute_rows` computes row numbers.

An order is a list of device steps (`order/device_steps.py`): the first one receives a position, each step replaces the
number, and the last number is a row number. An instruction encodes one device step in ten 64-bit words; the first one
is the operation. gather.cu documents the other words.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np

from forebay.core.spec import Array
from forebay.order.device_steps import (
    MAX_DEVICE_STEPS,
    Add,
    Branch,
    DeviceStep,
    DeviceSteps,
    DrawAlias,
    Lookup,
    Mix,
    Permute,
)

__all__ = ["INSTRUCTION_WORDS", "PROGRAM_NBYTES", "Operation", "assemble"]

INSTRUCTION_WORDS = 10  # the same number as in gather.cu
PROGRAM_NBYTES = MAX_DEVICE_STEPS * INSTRUCTION_WORDS * 8  # bytes of the longest program


class Operation(IntEnum):
    """The operations of the kernel, with the same numbers as in gather.cu."""

    END = 0
    ADD = 1
    PERMUTE = 2
    LOOK_UP_32 = 3
    LOOK_UP_64 = 4
    DRAW_ALIAS = 5
    BRANCH = 6
    MIX = 7
    ENTER_PART = 8


def assemble(steps: DeviceSteps, table_pointer: Callable[[Array], int]) -> Array:
    """Encode device steps as instructions, and return these as an array of 64-bit words.

    `table_pointer` returns the address of a table on the device.
    """
    instructions: list[list[int]] = []
    _append_steps(instructions, steps, table_pointer)
    program = np.zeros((len(instructions), INSTRUCTION_WORDS), np.uint64)
    for line, words in zip(program, instructions, strict=True):
        line[: len(words)] = [word & (1 << 64) - 1 for word in words]  # a negative number as its two's complement
    return program


def _append_steps(instructions: list[list[int]], steps: DeviceSteps, table_pointer: Callable[[Array], int]) -> None:
    for step in steps:
        if isinstance(step, Branch | Mix):
            _append_parts(instructions, step, table_pointer)
            return  # a branch or a mix is the last step
        instructions.append(_encode(step, table_pointer))
    instructions.append([Operation.END])


def _append_parts(instructions: list[list[int]], step: Branch | Mix, table_pointer: Callable[[Array], int]) -> None:
    """Append a device step that continues with the steps of one of several parts.

    A branch selects the part by ranges of positions, a mix by a repeated pattern. A mix begins with the instruction
    MIX. Both have one entry (instruction) for each part, followed by the steps of all parts. The last word that an
    entry uses is the index of the first instruction of its part; zeros follow.
    """
    entries: Sequence[Sequence[int]]
    if isinstance(step, Mix):
        instructions.append([Operation.MIX, table_pointer(step.slots), len(step.slots)])
        entries = [(Operation.ENTER_PART, count) for count in step.counts]
    else:
        bounds = zip(step.starts, step.stops, strict=True)
        entries = [(Operation.BRANCH, start, stop) for start, stop in bounds]
    first_entry = len(instructions)
    instructions += [[] for _ in entries]
    for number, (entry, part) in enumerate(zip(entries, step.parts, strict=True), first_entry):
        instructions[number] = [*entry, len(instructions)]
        _append_steps(instructions, part, table_pointer)


def _encode(step: DeviceStep, table_pointer: Callable[[Array], int]) -> list[int]:
    if isinstance(step, Add):
        return [Operation.ADD, step.offset]
    if isinstance(step, Permute):
        params = step.params
        return [Operation.PERMUTE, params.length, params.mask, params.term, params.shift, *params.factors]
    if isinstance(step, Lookup):
        operation = Operation.LOOK_UP_32 if step.table.itemsize == 4 else Operation.LOOK_UP_64
        return [operation, table_pointer(step.table)]
    assert isinstance(step, DrawAlias)
    return [Operation.DRAW_ALIAS, table_pointer(step.entries), step.bucket_bits, step.key]

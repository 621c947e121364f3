"""The instructions of a compiled module of XLA, parsed from its text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

__all__ = ["Computation", "Dims", "HloModule", "Instruction", "parse_module"]

Dims = tuple[int, ...]

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*?)\s([a-z][\w\-]*)\((.*)$")
_ARRAY = re.compile(r"[a-z]+(\d*)\w*\[([\d,]*)\]")
_NAME = re.compile(r"%([\w.\-]+)")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a computation."""

    name: str
    opcode: str
    result: Dims  # dimensions of the first array of the result
    nbytes: int  # bytes of all arrays of the result
    operands: tuple[str, ...]  # names of the instructions whose results this instruction uses
    arguments: str  # the text between the parentheses: the operands, or the number of a `parameter`
    attributes: str  # the text after the operands
    is_root: bool


Computation = dict[str, Instruction]  # by name


@dataclass(frozen=True, slots=True)
class HloModule:
    """A compiled module."""

    computations: dict[str, Computation]  # by name
    entry: str  # name of the computation that runs first; empty if the text is not a module


def parse_module(text: str) -> HloModule:
    """Return the module that a text of XLA describes.

    Skip lines that are neither an instruction nor the start of a computation.
    """
    computations: dict[str, Computation] = {}
    current: Computation = {}
    entry = ""
    for line in text.splitlines():
        if match := _COMPUTATION.match(line):
            current = computations[match[2]] = {}
            entry = match[2] if match[1] else entry
        elif match := _INSTRUCTION.match(line):
            root, name, result, opcode, rest = match.groups()
            arguments, _, attributes = rest.partition(")")
            arrays = list(_arrays(result))
            current[name] = Instruction(
                name=name,
                opcode=opcode,
                result=arrays[0][0] if arrays else (),
                nbytes=sum(nbytes for _, nbytes in arrays),
                operands=tuple(_NAME.findall(arguments)),
                arguments=arguments,
                attributes=attributes,
                is_root=bool(root),
            )
    return HloModule(computations, entry)


def _arrays(text: str) -> Iterator[tuple[Dims, int]]:
    """Yield the dimensions and the bytes of each array in the text of a type.

    Such a text is, for example, `(f32[64,16]{1,0}, s8[4]{0})`.
    """
    for bits, sizes in _ARRAY.findall(text):
        dims = tuple(map(int, filter(None, sizes.split(","))))
        # The name of a type contains its bits: f32, c64. `pred`, which has no bits in its name, and 4-bit types count
        # as one byte.
        yield dims, prod(dims) * max(8, int(bits or 8)) // 8

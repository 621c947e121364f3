"""Bytes that the kernels of a program of XLA read and write, from the text of its compiled module.

A kernel has the name of its fusion. It reads its operands and writes its result. If it only slices an operand, it reads
the slices. If it updates a slice of an operand in place, it writes the slice.
"""

import re

from forebay.doctor.capture.hlo_module import Computation, HloModule, Instruction, parse_module

__all__ = ["kernel_nbytes"]

_CALLS = re.compile(r"calls=%?([\w.\-]+)")
_SLICING = frozenset({"slice", "dynamic-slice", "gather"})  # opcodes that read a part of their first operand
_UPDATE = "dynamic-update-slice"  # writes a part of its first operand, in place


def kernel_nbytes(text: str) -> dict[str, int]:
    """Return the bytes of each fusion of a module, by the name of its kernel."""
    module = parse_module(text)
    return {
        re.sub(r"[.\-]", "_", fusion.name): _fusion_nbytes(fusion, instructions, module)
        for instructions in module.computations.values()
        for fusion in instructions.values()
        if fusion.opcode == "fusion"
    }


def _fusion_nbytes(fusion: Instruction, instructions: Computation, module: HloModule) -> int:
    match = _CALLS.search(fusion.attributes)
    body = module.computations.get(match[1], {}) if match else {}
    parameters = {each.arguments.strip(): each for each in body.values() if each.opcode == "parameter"}
    read = 0
    for position, name in enumerate(fusion.operands):
        operand_nbytes = instructions[name].nbytes if name in instructions else 0
        parameter = parameters.get(str(position))
        read += operand_nbytes if parameter is None else min(operand_nbytes, _read_nbytes(parameter, body))
    return read + _written_nbytes(fusion, body)


def _read_nbytes(parameter: Instruction, body: Computation) -> int:
    """Return the bytes of a parameter that the body of a fusion reads."""
    users = [each for each in body.values() if parameter.name in each.operands]
    if any(_reads_all(each, parameter) for each in users):
        return parameter.nbytes
    return sum(each.nbytes for each in users if each.opcode in _SLICING)


def _reads_all(user: Instruction, parameter: Instruction) -> bool:
    is_first = bool(user.operands) and user.operands[0] == parameter.name
    return not (is_first and (user.opcode in _SLICING or user.opcode == _UPDATE))


def _written_nbytes(fusion: Instruction, body: Computation) -> int:
    root = next((each for each in body.values() if each.is_root), None)
    if root is None or root.opcode != _UPDATE or len(root.operands) < 2 or root.operands[1] not in body:
        return fusion.nbytes
    return body[root.operands[1]].nbytes

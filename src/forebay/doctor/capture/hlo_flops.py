"""Counts the floating-point operations of an XLA program, from its compiled module's text.

Only products count: `dot`, `convolution`, and the calls of cuBLAS and cuDNN that replace them on a GPU. The cost
analysis of XLA itself does not count these calls, and it counts the body of a loop only once.
"""

import re
from collections.abc import Iterator
from math import prod

from forebay.doctor.capture.hlo_module import Computation, Dims, HloModule, Instruction, parse_module

__all__ = ["UnknownFlopsError", "count_hlo_flops"]


class UnknownFlopsError(Exception):
    """The number of operations of a program is unknown."""


_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"(?:calls|to_apply|body)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"(?:branch_computations=\{([^}]*)\}|(?:true|false)_computation=%?([\w.\-]+))")
_TRIP_COUNT = re.compile(r'known_trip_count":\{"n":"(\d+)"')
_CONTRACTING = re.compile(r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d,"]*)')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_LABELS = re.compile(r"dim_labels=\w+_(\w+)->\w+")
_CALLING = ("fusion", "call", "while", "async-start")  # opcodes of instructions that run other computations
# Parts of the names of library functions. The text of a call of these functions does not show the sizes of its
# products.
_PRODUCTS_WITHOUT_SIZES = ("fmha", "cudnn$norm", "flash")


def count_hlo_flops(text: str) -> float:
    """Return the number of operations of the products in a module.

    Raise UnknownFlopsError if the text of the module does not show them.
    """
    module = parse_module(text)
    if not module.entry:
        raise UnknownFlopsError("the module has no entry computation")
    return float(_count(module.entry, module, {}))


def _count(name: str, module: HloModule, known: dict[str, int]) -> int:
    """Return the operations of a computation. `known` has the results of earlier calls."""
    if name not in known:
        known[name] = 0  # ends the recursion if a computation of a damaged text calls itself
        instructions = module.computations.get(name, {})
        known[name] = sum(
            _count_product(instruction, instructions) + _count_called(instruction, module, known)
            for instruction in instructions.values()
        )
    return known[name]


def _count_called(instruction: Instruction, module: HloModule, known: dict[str, int]) -> int:
    if instruction.opcode == "conditional":
        return max((_count(name, module, known) for name in _branches(instruction.attributes)), default=0)
    if instruction.opcode not in _CALLING:
        return 0
    flops = sum(_count(name, module, known) for name in _CALLED.findall(instruction.attributes))
    if instruction.opcode != "while" or not flops:
        return flops
    trips = _TRIP_COUNT.search(instruction.attributes)
    if trips is None:
        raise UnknownFlopsError("a loop has an unknown number of iterations")
    return flops * int(trips[1])


def _branches(attributes: str) -> Iterator[str]:
    for names, name in _BRANCHES.findall(attributes):
        yield from _NAME.findall(names) if names else [name]


def _count_product(instruction: Instruction, instructions: Computation) -> int:
    shapes = [instructions[name].result for name in instruction.operands if name in instructions]
    match = _TARGET.search(instruction.attributes)
    target = match[1] if match else ""
    if any(part in target for part in _PRODUCTS_WITHOUT_SIZES):
        raise UnknownFlopsError(f"{target} does not show its sizes")
    try:
        if instruction.opcode == "dot" or "cublas" in target:
            return _count_dot(instruction, shapes)
        if instruction.opcode == "convolution" or "cudnn$conv" in target:
            return _count_convolution(instruction, shapes, target)
    except (IndexError, TypeError, ValueError) as error:
        raise UnknownFlopsError(f"{instruction.opcode} does not show its sizes") from error
    return 0


def _count_dot(instruction: Instruction, shapes: list[Dims]) -> int:
    contracting = _CONTRACTING.search(instruction.attributes)
    if contracting is None:
        raise ValueError("no contracting dimensions")
    indices = [int(index) for index in contracting[1].replace('"', "").split(",") if index]
    return 2 * prod(instruction.result) * prod(shapes[0][index] for index in indices)


def _count_convolution(instruction: Instruction, shapes: list[Dims], target: str) -> int:
    """Return the operations of a convolution, or of one of its gradients.

    The gradients are those of the input (BackwardInput) and of the filter (BackwardFilter).
    """
    labels = _LABELS.search(instruction.attributes)
    if labels is None:
        raise ValueError("no labels")
    result, filters = instruction.result, shapes[1]
    if "BackwardInput" in target:
        result = shapes[0]
    elif "BackwardFilter" in target:
        result, filters = shapes[1], instruction.result
    return 2 * prod(result) * prod(filters) // filters[labels[1].index("o")]

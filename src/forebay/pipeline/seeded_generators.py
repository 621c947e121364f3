"""Finds calls that draw random numbers from a generator seeded in the same function.

`torch.rand(3, generator=g)` gives the same numbers in each call of the function if `g` is a local variable with the
value of `torch.Generator().manual_seed(...)`. The search reads bytecode, and follows only straight code: instructions
without a jump. It treats a call that it does not understand as one without a seeded generator.
"""

import dis
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeAlias

__all__ = ["CodeStep", "NamePath", "draws_from_seeded_generator", "find_name_paths", "read_steps"]

_IGNORED = ("CACHE", "EXTENDED_ARG", "PRECALL", "COPY_FREE_VARS", "NOT_TAKEN")
_LOCAL_READS = ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK")
_READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", *_LOCAL_READS)
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_CALLS = ("CALL", "CALL_KW")
_LEAVES_STRAIGHT_CODE = frozenset((*dis.hasjrel, *dis.hasjabs, dis.opmap["CALL_FUNCTION_EX"]))
_GENERATORS = ("torch.Generator", "torch._C.Generator")

# A function from `NamePath.names` to the full name of the object, such as "torch.Generator"; None if it is unknown.
NameFinder: TypeAlias = Callable[[tuple[str, ...]], str | None]


@dataclass(frozen=True, slots=True)
class CodeStep:
    """One bytecode instruction. An instruction that reads or writes two variables becomes two steps."""

    name: str  # of the operation, such as "LOAD_FAST"
    value: Any  # argument of the instruction, such as the name of a variable
    effect: int  # change of the stack depth
    is_straight: bool  # False if the instruction may jump, or if it is a call with an unknown number of arguments
    keywords: tuple[str, ...] = ()  # names of the keyword arguments of a call

    def is_attribute(self, name: str) -> bool:
        return self.name in _ATTRIBUTES and self.value == name


@dataclass(frozen=True, slots=True)
class NamePath:
    """Steps that read a variable and then attributes, such as `torch.random.manual_seed`."""

    names: tuple[str, ...]  # the variable, then the attributes
    start: int  # index of the first step
    stop: int  # index after the last step


def read_steps(code: CodeType) -> list[CodeStep]:
    """Return the steps of the code."""
    steps: list[CodeStep] = []
    keywords: tuple[str, ...] = ()
    for instruction in dis.get_instructions(code):
        name, value = instruction.opname, instruction.argval
        if name == "KW_NAMES":  # Python 3.11 and 3.12
            keywords = code.co_consts[instruction.arg or 0]
        elif name in _CALLS:
            if name == "CALL_KW":  # Python 3.13 and later: the step before the call loads a tuple of names
                keywords = steps[-1].value if isinstance(steps[-1].value, tuple) else ()
            popped = instruction.arg + 2 + (name == "CALL_KW") if instruction.arg is not None else 0
            steps.append(CodeStep(name, instruction.arg, 1 - popped, True, keywords))
            keywords = ()
        elif isinstance(value, tuple) and "_FAST_" in name and name.count("FAST") == 2:  # Python 3.13 and later
            first, second = name.replace("_LOAD", " LOAD").replace("_STORE", " STORE").split()
            pair = zip((first, second), value, strict=True)
            steps += [CodeStep(part, each, 1 if part.startswith("LOAD") else -1, True) for part, each in pair]
        elif name not in _IGNORED:
            effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
            steps.append(CodeStep(name, value, effect, instruction.opcode not in _LEAVES_STRAIGHT_CODE))
    return steps


def find_name_paths(steps: Sequence[CodeStep]) -> Iterator[NamePath]:
    """Yield a path for each read of a variable, with the attributes that follow."""
    for start, step in enumerate(steps):
        if step.name in _READS:
            stop = start + 1
            while stop < len(steps) and steps[stop].name in _ATTRIBUTES:
                stop += 1
            yield NamePath((step.value, *(str(each.value) for each in steps[start + 1 : stop])), start, stop)


def draws_from_seeded_generator(
    code: CodeType, steps: Sequence[CodeStep], callee: NamePath, find_name: NameFinder
) -> bool | None:
    """Return whether the code calls `callee` with a generator that it creates and seeds.

    Return None if the code does not call `callee` at this place, or calls it without `generator=`.
    """
    call = _find_call(steps, callee.stop)
    if call is None:
        return None
    keywords = steps[call].keywords
    if "generator" not in keywords:
        return None
    start, stop = _find_argument(steps, callee.stop, call, keywords.index("generator") - len(keywords))
    if start >= stop:
        return False
    if stop == start + 1 and steps[start].name in _LOCAL_READS:
        return _is_seeded_variable(code, steps, steps[start].value, find_name)
    return any(
        (path.start, end, is_seeded) == (_skip_null(steps, start), stop, True)
        for path, end, is_seeded in _find_generators(steps, find_name)
    )


def _find_call(steps: Sequence[CodeStep], start: int) -> int | None:
    """Return the index of the step that calls the object from step `start - 1`.

    This object is on top of the stack before step `start`. Return None if the code does not call it.
    """
    depth = 1
    for index in range(start, len(steps)):
        step = steps[index]
        if not step.is_straight:
            return None
        depth += step.effect
        if depth <= 1 and step.name in _CALLS:  # the call has replaced the object by its result
            return index
        if depth <= 0:
            return None
    return None


def _find_argument(steps: Sequence[CodeStep], start: int, call: int, number: int) -> tuple[int, int]:
    """Return the range (start, stop) of the steps that compute an argument.

    `number` counts the arguments from the end, beginning with -1. Return (0, 0) if the argument is not found.
    """
    depth, last_index = 1, {1: start - 1}  # stack depth -> index of the last step after which the stack had this depth
    for index in range(start, call):
        depth += steps[index].effect
        last_index[depth] = index
    end = depth - (steps[call].name == "CALL_KW")  # stack depth after the last argument
    first, last = last_index.get(end + number), last_index.get(end + number + 1)
    return (0, 0) if first is None or last is None else (first + 1, last + 1)


def _keyword_of(steps: Sequence[CodeStep], index: int) -> str | None:
    """Return the keyword for which a call receives the value of step `index`.

    Return None if the code does not pass the value by keyword.
    """
    depth = 1
    for step in steps[index + 1 :]:
        if not step.is_straight or depth <= 0:
            return None
        if step.name in _CALLS and depth < 1 - step.effect:
            number = depth - (step.name == "CALL_KW")  # place of the argument, counted from the last (1)
            return step.keywords[-number] if number <= len(step.keywords) else None
        depth += step.effect
    return None


def _find_generators(steps: Sequence[CodeStep], find_name: NameFinder) -> Iterator[tuple[NamePath, int, bool]]:
    """Yield each expression that makes a generator: its path, its end, whether it seeds.

    The end is the index after the last step of the expression.
    """
    for path in find_name_paths(steps):
        call = _find_call(steps, path.stop) if find_name(path.names) in _GENERATORS else None
        if call is None:
            continue
        seeding = call + 1
        if steps[seeding].is_attribute("manual_seed"):
            end = _find_call(steps, seeding + 1)
            if end is not None:
                yield path, end + 1, True
        else:
            yield path, call + 1, False


def _is_seeded_variable(code: CodeType, steps: Sequence[CodeStep], name: str, find_name: NameFinder) -> bool:
    """Return whether a local variable only ever holds generators that the code seeds immediately.

    Return False also if the code passes the variable elsewhere than to `generator=`, because the receiver could seed
    the generator at random.
    """
    parameters = code.co_argcount + code.co_kwonlyargcount
    stores = {index for index, step in enumerate(steps) if step.name == "STORE_FAST" and step.value == name}
    if not stores or name in code.co_varnames[:parameters]:
        return False
    reads = (index for index, step in enumerate(steps) if step.name in _READS and step.value == name)
    if not all(
        steps[read + 1].is_attribute("manual_seed") or _keyword_of(steps, read) == "generator" for read in reads
    ):
        return False
    seeded_stores = {
        end
        for _, end, is_seeded in _find_generators(steps, find_name)
        if is_seeded or _is_seeded_next(steps, end + 1, name)
    }
    return stores <= seeded_stores


def _is_seeded_next(steps: Sequence[CodeStep], index: int, name: str) -> bool:
    """Return whether the statement at `index` calls `manual_seed` of a variable."""
    is_read = index + 1 < len(steps) and steps[index].name in _LOCAL_READS and steps[index].value == name
    return is_read and steps[index + 1].is_attribute("manual_seed")


def _skip_null(steps: Sequence[CodeStep], index: int) -> int:
    return index + (steps[index].name == "PUSH_NULL")

"""Counts the floating-point operations (FLOPs) of a step, and the bytes of XLA's kernels.

The FLOPs of a step and its time show which share of the GPU's peak speed the model uses.

PyTorch: in one step before the recorded steps, a profiler of PyTorch records the shapes of all operators, also if the
script leaves the GPU unused. It makes this step longer by some microseconds per operator. The profiler does not use
CUPTI, which the doctor itself needs, and compiled code stays compiled.

JAX: after the recorded steps, the doctor reads the HLO texts of the compiled programs that the loop called.

TensorFlow: hooks count the FLOPs of each graph when TensorFlow traces it.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import get_ident
from typing import Any

from forebay.doctor.capture.device.ledger import active_profiler
from forebay.doctor.capture.hlo_flops import UnknownFlopsError, count_hlo_flops
from forebay.doctor.capture.hlo_module import Computation, HloModule, Instruction, parse_module
from forebay.doctor.capture.op_flops import Shapes, count_computing, count_flops
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["ArithmeticRecorder", "bytes_of_kernels", "flops_of_graphs", "flops_of_programs", "kernel_nbytes"]

_CALLS = re.compile(r"calls=%?([\w.\-]+)")
_NOT_IN_MODULE_NAMES = re.compile(r"[^\w.-]")  # characters that JAX replaces by "_"
_SLICING = frozenset({"slice", "dynamic-slice", "gather"})  # opcodes that read a part of their first operand
_UPDATE = "dynamic-update-slice"  # writes a part of its first operand, in place
MAX_OPERATORS = 1_000_000  # of one step; the recorder ignores further operators
MAX_KERNELS = 10_000  # of a capture: those that read and write the most bytes


class ArithmeticRecorder:
    """Counts the FLOPs of one step.

    The recorder passes errors to `on_error`, because they must not reach the script.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self.facts: dict[str, Any] | None = None  # in the capture format; None if the FLOPs are unknown
        self.operators = 0  # operators of PyTorch in one step that compute; 0 if unknown
        self.kernels: dict[str, int] = {}  # name of a kernel of XLA -> bytes that it reads and writes
        self._on_error = on_error
        self._thread = 0  # id of the thread whose operators are recorded; 0 if none
        self._records: Any = None  # what the profiler of PyTorch has recorded

    @property
    def is_recording(self) -> bool:
        return self._thread != 0

    def start(self) -> None:
        """Start to record the operators of PyTorch.

        Do nothing without PyTorch, or if a profiler is running.
        """
        torch = sys.modules.get("torch")
        try:
            if torch is None or active_profiler() is not None:
                return
            autograd = torch._C._autograd
            if autograd._profiler_enabled():
                return
            config = torch._C._profiler._ExperimentalConfig()
            state = torch._C._profiler.ProfilerState.CPU
            # The first option records shapes. The other options are off.
            options = (True, False, False, False, False)
            autograd._enable_profiler_legacy(torch._C._profiler.ProfilerConfig(state, *options, config))
            self._thread = get_ident()
        except Exception as error:
            self._on_error(error)

    def stop(self) -> bool:
        """Stop the recording if this thread started it; return whether it did."""
        if self._thread != get_ident():
            return False
        self._thread = 0
        try:
            self._records = sys.modules["torch"]._C._autograd._disable_profiler_legacy()
        except Exception as error:
            self._on_error(error)
        return True

    def count(self, events: Sequence[LedgerEvent], step_ends: Sequence[int]) -> None:
        """Set `facts` and `kernels` from the recorded operators, graphs or programs.

        `events` are all events of the run. `step_ends` are the start of the first recorded step and the end of each
        recorded step, in nanoseconds.
        """
        records, self._records = self._records, None
        try:
            flops = count_flops(_operators(records)) if records is not None else None
            self.operators = count_computing(_nested_names(records)) if records is not None else 0
            source = "the shapes of the operators of one step"
            if not flops and len(step_ends) > 1:
                flops, source = flops_of_graphs(events, step_ends), "the shapes of the graphs of one step"
            if not flops and "jax" in sys.modules and len(step_ends) > 1:
                programs = _called_programs(events, step_ends)
                self.kernels = bytes_of_kernels(programs)
                flops, source = flops_of_programs(events, step_ends, programs), "the compiled programs of one step"
            self.facts = {"flops_per_step": flops, "source": source} if flops else None
        except UnknownFlopsError:
            self.facts = None
        except Exception as error:
            self._on_error(error)


def _operators(records: Any) -> Iterator[tuple[str, Shapes]]:
    """Yield the name of each recorded operator, and the shapes of its arguments."""
    count = 0
    for thread_records in records:
        for record in thread_records:
            if record.kind() == "push" and count < MAX_OPERATORS:  # the start of an operator
                count += 1
                yield record.name(), record.shapes()


def _nested_names(records: Any) -> Iterator[str | None]:
    """Yield the name of each operator at its start, and None at its end."""
    for thread_records in records:
        for record in thread_records:
            if record.kind() in ("push", "pop"):
                yield record.name() if record.kind() == "push" else None


def flops_of_graphs(events: Sequence[LedgerEvent], step_ends: Sequence[int]) -> float | None:
    """Return the FLOPs per step of the TensorFlow functions that the recorded steps call.

    Return None if the FLOPs of a called function are unknown, or if the result is 0. Raise UnknownFlopsError if the
    graphs of one called function have different FLOPs.
    """
    flops_by_function: dict[str, set[float]] = {}
    for event in events:
        detail = event.detail or {}
        if event.kind == EventKind.COMPILE and event.api == "tf.function":
            flops_by_function.setdefault(str(detail.get("function", "")), set()).add(detail.get("flops", -1))
    # -1: the FLOPs of a graph are unknown.
    known = {name: flops for name, flops in flops_by_function.items() if -1 not in flops}
    return _sum_calls(events, step_ends, known)


def flops_of_programs(
    events: Sequence[LedgerEvent], step_ends: Sequence[int], programs: dict[str, list[str]]
) -> float | None:
    """Return the FLOPs per step of the jitted functions that the recorded steps call.

    `programs` maps the name of each function to the HLO texts of its compiled modules. Return None if a called function
    has no module, or if the result is 0. Raise UnknownFlopsError if a text does not show its FLOPs, or if the modules
    of one called function have different FLOPs.
    """
    return _sum_calls(events, step_ends, {name: {*map(count_hlo_flops, texts)} for name, texts in programs.items()})


def bytes_of_kernels(programs: dict[str, list[str]]) -> dict[str, int]:
    """Return a dict: kernel name -> bytes that the kernel reads and writes.

    `programs` maps the name of each function to the HLO texts of its compiled modules. If kernels with the same name
    have different numbers of bytes, the result omits this name. It has the MAX_KERNELS names with the most bytes.
    """
    sizes_by_name: dict[str, set[int]] = {}
    for text in (text for texts in programs.values() for text in texts):
        for name, nbytes in kernel_nbytes(text).items():
            sizes_by_name.setdefault(name, set()).add(nbytes)
    unique = {name: nbytes.pop() for name, nbytes in sizes_by_name.items() if len(nbytes) == 1}
    return dict(sorted(unique.items(), key=lambda item: -item[1])[:MAX_KERNELS])


def kernel_nbytes(text: str) -> dict[str, int]:
    """Return a dict: kernel name -> bytes, for the kernels in an HLO text.

    Each fusion, which is an instruction that combines several operations, becomes one kernel. The kernel has the name
    of the fusion, with "_" in place of "." and "-". It reads its operands and writes its result. If it only slices an
    operand, it reads the slices. If it updates a slice of an operand in place, it writes the slice.
    """
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
    parameters = {
        instruction.arguments.strip(): instruction for instruction in body.values() if instruction.opcode == "parameter"
    }
    read = 0
    for position, name in enumerate(fusion.operands):
        operand_nbytes = instructions[name].nbytes if name in instructions else 0
        parameter = parameters.get(str(position))
        read += operand_nbytes if parameter is None else min(operand_nbytes, _read_nbytes(parameter, body))
    return read + _written_nbytes(fusion, body)


def _read_nbytes(parameter: Instruction, body: Computation) -> int:
    """Return how many bytes of a parameter the body of a fusion reads."""
    users = [instruction for instruction in body.values() if parameter.name in instruction.operands]
    if any(_reads_all(instruction, parameter) for instruction in users):
        return parameter.nbytes
    return sum(instruction.nbytes for instruction in users if instruction.opcode in _SLICING)


def _reads_all(user: Instruction, parameter: Instruction) -> bool:
    is_first = bool(user.operands) and user.operands[0] == parameter.name
    return not (is_first and (user.opcode in _SLICING or user.opcode == _UPDATE))


def _written_nbytes(fusion: Instruction, body: Computation) -> int:
    root = next((instruction for instruction in body.values() if instruction.is_root), None)
    if root is None or root.opcode != _UPDATE or len(root.operands) < 2 or root.operands[1] not in body:
        return fusion.nbytes
    return body[root.operands[1]].nbytes


def _count_calls(events: Sequence[LedgerEvent], step_ends: Sequence[int]) -> Counter[str]:
    """Return how often the recorded steps call each compiled function."""
    return Counter(
        str((event.detail or {}).get("function", ""))
        for event in events
        if event.kind == EventKind.RUN and step_ends[0] < event.end <= step_ends[-1]
    )


def _sum_calls(events: Sequence[LedgerEvent], step_ends: Sequence[int], flops: dict[str, set[float]]) -> float | None:
    """Return the FLOPs per step of all calls in the recorded steps.

    `flops` maps each function to the FLOPs of its graphs or programs. Return None if a called function is missing in
    `flops`, or if the result is 0.
    """
    total = 0.0
    for name, count in _count_calls(events, step_ends).items():
        if name not in flops:
            return None
        if len(flops[name]) != 1:
            raise UnknownFlopsError(f"{name} was compiled for several shapes")
        total += next(iter(flops[name])) * count / (len(step_ends) - 1)
    return total or None


def _called_programs(events: Sequence[LedgerEvent], step_ends: Sequence[int]) -> dict[str, list[str]]:
    """Return a dict: jitted function that recorded steps call -> texts of its modules."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is None or not bridge.backends_are_initialized():
        return {}
    functions = {_module_name(name): name for name in _count_calls(events, step_ends)}
    programs = dict[str, list[str]]()
    for executable in sys.modules["jax"].local_devices()[0].client.live_executables():
        with suppress(Exception):  # a program that cannot be read must not hide the other programs
            module = executable.hlo_modules()[0]
            name = _module_name(str(module.name).partition("_")[2])  # without the prefix `jit_` or `pmap_`
            if name in functions:
                programs.setdefault(functions[name], []).append(module.to_string())
    return programs


def _module_name(function: str) -> str:
    """Return the name that JAX gives the module of a function: `_lambda` for `<lambda>`.

    JAX removes underscores at the end, except in old versions.
    """
    return _NOT_IN_MODULE_NAMES.sub("_", function).rstrip("_")

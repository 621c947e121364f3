"""Names the function that a line of the script was calling when it was sampled.

If the script called Python code of a library, the stack names the function. If it called a function written in C, the
bytecode instruction gives the place in the source, and the text at this place gives the name. To find the module of the
function, the doctor reads only global variables of the script: reading local variables of a running function could keep
their values alive.
"""

import builtins
import dis
import linecache
import re
import sys
from types import CodeType, FrameType, ModuleType
from typing import Any

from forebay.doctor.capture.source_lines import SourceLines
from forebay.doctor.model.events import PYTHON_CODE, STORED_STACK

__all__ = ["CalledFunctions"]

MAX_DEPTH = 200  # innermost frames of a stack that are searched for a line of the script
_CALLED_NAME = re.compile(r"[A-Za-z_][\w.]*(?=\s*\()")
# Prefixes of instructions that may run C code for a long time: calls, operators and iterators. Only calls have a name.
_C_INSTRUCTIONS = ("CALL", "PRECALL", "BINARY", "COMPARE", "UNARY", "FOR_ITER", "SEND", "STORE_SUBSCR", "CONTAINS")


class CalledFunctions:
    """Finds the innermost line of the script in a stack, and the called function."""

    def __init__(self, lines: SourceLines) -> None:
        self._lines = lines
        self._names: dict[tuple[int, int], str] = {}  # by id of the code object and instruction offset
        self._codes: dict[int, CodeType] = {}  # keeps code objects alive, so that Python does not reuse their ids

    def find(self, frame: FrameType) -> tuple[int, str]:
        """Return the index of the innermost line, and the name of the called function.

        The index is -1 if the stack has no line of the script. The name is PYTHON_CODE if the line executes its own
        bytecode. It is empty if the function is unknown, or if the line executes an operator or an iterator, which may
        run C code.
        """
        library: list[FrameType] = []  # frames of libraries that the line has called, outermost last
        current: FrameType | None = frame
        while current is not None and len(library) < MAX_DEPTH:
            line = self._lines.line_of_frame(current)
            if line >= 0:
                return line, self._name_of_library(library) if library else self.name_of_instruction(current)
            library.append(current)
            current = current.f_back
        return -1, ""

    def _name_of_library(self, frames: list[FrameType]) -> str:
        """Return the name of the outermost function that is no wrapper and no hook.

        A function that is defined inside a function counts as a wrapper. Return STORED_STACK if anomaly mode of PyTorch
        is storing the stack of an operation.
        """
        if any(_is_stored_stack(frame) for frame in frames):
            return STORED_STACK
        for frame in reversed(frames):
            if "<locals>" not in frame.f_code.co_qualname and not self._lines.is_doctor(frame.f_code.co_filename):
                return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_qualname}"
        return ""

    def name_of_instruction(self, frame: FrameType) -> str:
        """Return the name of the function that the current instruction of a frame calls.

        As in `find`, the name may be PYTHON_CODE or empty.
        """
        key = id(frame.f_code), frame.f_lasti
        name = self._names.get(key)
        if name is None:
            self._codes[id(frame.f_code)] = frame.f_code
            name = self._names[key] = _describe_instruction(frame.f_code, frame.f_lasti, frame.f_globals)
        return name


def _is_stored_stack(frame: FrameType) -> bool:
    return frame.f_code.co_name == "format_stack" and frame.f_globals.get("__name__") == "torch.fx.traceback"


def _describe_instruction(code: CodeType, offset: int, variables: dict[str, Any]) -> str:
    instruction = dis.opname[code.co_code[offset]]
    if not instruction.startswith(_C_INSTRUCTIONS):
        return PYTHON_CODE
    if not instruction.startswith(("CALL", "PRECALL")):
        return ""
    match = _CALLED_NAME.match(_source_of_instruction(code, offset))
    return _resolve(match.group(), variables) if match else ""


def _source_of_instruction(code: CodeType, offset: int) -> str:
    """Return the source text of an instruction, up to the end of its first line.

    An instruction has two bytes, so `offset // 2` is its number.
    """
    for number, (line, _, column, _) in enumerate(code.co_positions()):
        if number == offset // 2 and line is not None and column is not None:
            return linecache.getline(code.co_filename, line).encode()[column:].decode(errors="replace")
    return ""


def _resolve(dotted_name: str, variables: dict[str, Any]) -> str:
    """Return the full name of a called function, such as `numpy.dot`.

    `dotted_name` must begin with a global variable or a builtin. Return "" for other names, such as those that begin
    with a local variable, and for functions and objects of `__main__`.
    """
    root, _, rest = dotted_name.partition(".")
    value = variables.get(root, getattr(builtins, root, None))
    if isinstance(value, ModuleType):
        return f"{value.__name__}.{rest}"
    owner = value if hasattr(value, "__qualname__") else type(value)  # a class or a function, or the class of an object
    module = getattr(owner, "__module__", None)
    if value is None or not isinstance(module, str) or module == "__main__" or module not in sys.modules:
        return ""
    return ".".join(filter(None, (module, getattr(owner, "__qualname__", ""), rest)))

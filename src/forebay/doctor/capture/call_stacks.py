"""Gives each sampled call stack an index, so that a sample stores one integer.

A stack begins with its outermost line of user code. Each line of user code is a frame of its own. A library function
is one frame, whichever line it executes.
"""

from types import CodeType, FrameType

from forebay.doctor.capture.called_functions import CalledFunctions
from forebay.doctor.capture.source_lines import SourceLines
from forebay.doctor.model.events import PYTHON_CODE
from forebay.doctor.model.step_history import StackFrame

__all__ = ["CallStacks"]

MAX_FRAMES = 5_000  # of all stacks together; then a sample in a new frame counts for the caller of this frame
MAX_DEPTH = 60  # Python frames of one stack that are kept, counted from its outermost line of user code
MAX_SEARCHED = 1_000  # frames of a thread's stack that are searched for lines of user code


class CallStacks:
    """All stacks that were sampled so far, as call trees.

    Stacks with the same outer frames share these frames.
    """

    def __init__(self, lines: SourceLines) -> None:
        self.frames: list[StackFrame] = []
        self._lines = lines
        self._functions = CalledFunctions(lines)
        self._indices: dict[StackFrame, int] = {}
        self._library_names: dict[int, str] = {}  # by id of the code object
        self._codes: dict[int, CodeType] = {}  # keeps code objects alive, so that Python does not reuse their ids

    def find(self, frame: FrameType) -> int:
        """Return the index of a stack's innermost frame; -1: no line of user code.

        `frame` must be the innermost Python frame of its thread: for another frame, Python 3.13 or newer does not show
        whether it calls a Python function or a C function.
        """
        index = -1
        stack = self._user_stack(frame)
        for stack_frame, line in reversed(stack):
            if line >= 0:
                index = self._index_of(index, line)
            elif name := self._library_name(stack_frame):
                index = self._index_of(index, -1, name)
        # If the innermost frame is user code, it may be calling a C function, which has no Python frame. Add a frame
        # for the function, unless MAX_DEPTH has cut off the innermost frame.
        if index >= 0 and stack[0][0] is frame and stack[0][1] >= 0:
            name = self._functions.name_of_instruction(frame)
            if name not in ("", PYTHON_CODE):
                index = self._index_of(index, -1, name)
        return index

    def _user_stack(self, frame: FrameType) -> list[tuple[FrameType, int]]:
        """Return the outermost MAX_DEPTH frames of a stack, innermost first.

        Frames outside of the outermost line of user code do not count. Each frame comes with the index of its line; -1
        means that the frame is in a library.
        """
        stack: list[tuple[FrameType, int]] = []
        outermost = 0  # number of frames up to the outermost line of user code
        current: FrameType | None = frame
        while current is not None and len(stack) < MAX_SEARCHED:
            line = self._lines.line_of_frame(current)
            stack.append((current, line))
            outermost = len(stack) if line >= 0 else outermost
            current = current.f_back
        return stack[max(0, outermost - MAX_DEPTH) : outermost]

    def _index_of(self, caller: int, line: int, function: str = "") -> int:
        """Return the index of a frame, which is added if it is new.

        If there are MAX_FRAMES frames already, add nothing and return `caller`.
        """
        key = StackFrame(caller, line, function)
        index = self._indices.get(key)
        if index is None:
            if len(self.frames) >= MAX_FRAMES:
                return caller
            index = self._indices[key] = len(self.frames)
            self.frames.append(key)
        return index

    def _library_name(self, frame: FrameType) -> str:
        """Return the name of a library function; empty for wrappers and the doctor's functions.

        A function that is defined inside a function counts as a wrapper, such as that of a decorator.
        """
        code = frame.f_code
        name = self._library_names.get(id(code))
        if name is None:
            is_wrapper = "<locals>" in code.co_qualname or self._lines.is_doctor(code.co_filename)
            name = "" if is_wrapper else f"{frame.f_globals.get('__name__', '')}.{code.co_qualname}"
            self._codes[id(code)], self._library_names[id(code)] = code, name
        return name

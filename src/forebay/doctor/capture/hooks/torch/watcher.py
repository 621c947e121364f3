"""How functions of torch are watched: a stand-in writes down what a call did, and never lets its own trouble out."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from types import FrameType, ModuleType
from typing import Any

import torch
from torch.overrides import has_torch_function

from forebay.doctor.capture.hooks.proxy import StandIn
from forebay.doctor.capture.patches import Patches, Then, hooked
from forebay.doctor.model.events import Kind

__all__ = ["Describe", "Found", "Hook", "TorchStandIn", "Watched", "Watcher", "is_torchs", "place_of"]

Found = tuple[Kind, int, dict[str, Any] | None]  # what a call was, its bytes, its details
# Told of a call's result, its arguments and its keywords; None where it was nothing worth telling.
Describe = Callable[[Any, tuple[Any, ...], dict[str, Any]], Found | None]

_TORCH = (str(Path(torch.__file__).parent) + "/", "<eval_with_key>")  # its files, and code that it has generated


class TorchStandIn(StandIn):
    """Calls what it stands for; what else a call does is for those who inherit from it."""

    def __init__(self, original: Any, place: str) -> None:
        super().__init__(original)
        self.on = True  # whoever has taken hold of it keeps it after it has been replaced again
        self._place = place
        self._stands_for = getattr(original, "_stands_for", original)  # another stand-in may be there already

    def retire(self) -> None:
        """Do nothing more than what it stands for."""
        self.on = False

    def __eq__(self, other: object) -> Any:
        if isinstance(other, TorchStandIn):
            return other._stands_for is self._stands_for
        return other is self._stands_for or NotImplemented

    def __hash__(self) -> int:
        return hash(self._stands_for)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled as its name: whoever reads that finds whatever stands there."""
        return resolve_name, (self._place,)


def place_of(owner: Any, name: str) -> str:
    """Where a function is found again: `torch:Tensor.item`."""
    if isinstance(owner, ModuleType):
        return f"{owner.__name__}:{name}"
    return f"{owner.__module__}:{owner.__qualname__}.{name}"


class _Thread(threading.local):
    """What each thread is busy with."""

    preparing = False  # inside an input pipeline: what stays on the host there is part of the input
    running = ""  # the compiled function


class Hook(TorchStandIn):
    """A stand-in that writes something down."""

    def __init__(self, original: Any, place: str, watcher: "Watcher") -> None:
        super().__init__(original, place)
        self._watcher = watcher


class Watcher:
    """Puts hooks in place, and knows what each thread is busy with."""

    def __init__(self, patches: Patches) -> None:
        self.patches = patches
        self.ledger = patches.ledger
        self.thread = _Thread()

    def watch(self, owner: Any, name: str, api: str, describe: Describe) -> None:
        """Let calls of `owner.name` be written down as they end."""
        self.replace(owner, name, api, partial(Watched, api=api, describe=describe))

    def replace(self, owner: Any, name: str, api: str, make: Callable[[Any, str, "Watcher"], Hook]) -> None:
        """Put a hook in the place of an attribute."""

        def build(original: Any) -> Hook:
            hook = make(original, place_of(owner, name), self)
            self.patches.undo_with(hook.retire, api=api)
            self._show_to_script(hook, api)
            return hook

        self.patches.replace(owner, name, build, api=api)

    def is_aside(self, caller: FrameType) -> bool:
        """Whether a call that crosses nothing is not the loop's own: made by torch itself, or by an input pipeline."""
        return self.thread.preparing or is_torchs(caller.f_code.co_filename)

    @contextmanager
    def quietly(self, api: str) -> Iterator[None]:
        """What fails in here is our trouble, not the user's."""
        try:
            yield
        except Exception as error:
            self.ledger.failed(api, error)

    def _show_to_script(self, hook: Hook, api: str) -> None:
        """TorchScript knows functions by their address: it is told ours."""
        with self.quietly(api):
            table = torch.jit._builtins._get_builtin_table()
            known = table.get(id(hook._original))
            if known is not None:
                table[id(hook)] = known
                self.patches.undo_with(lambda: table.pop(id(hook), None), api=api)


class Watched(Hook):
    """Writes down each call as it ends, unless it is part of another that is written down."""

    def __init__(self, original: Any, place: str, watcher: Watcher, *, api: str, describe: Describe) -> None:
        super().__init__(original, place, watcher)
        self._call = hooked(watcher.ledger, api, original, _writes(watcher, api, describe))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def retire(self) -> None:
        super().retire()
        self._call = self._original


def _writes(watcher: Watcher, api: str, describe: Describe) -> Then:
    ledger, is_aside = watcher.ledger, watcher.is_aside

    def write(start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch._C._is_tracing():
            return  # to look at a shape would become part of what is traced
        if has_torch_function(args):
            with torch._C.DisableTorchFunction():  # a subclass or a mode is not to notice that it is looked at
                found = describe(result, args, kwargs)
        else:
            found = describe(result, args, kwargs)
        if found is None:
            return
        kind, nbytes, detail = found
        if type(nbytes) is not int:
            return  # a symbol: somebody traces shapes
        if detail is not None and detail.get("device") == "cpu" and is_aside(sys._getframe(3)):
            return
        ledger.write(kind, api, ledger.lines.here(3), start, end, nbytes, detail)

    return write


@cache
def is_torchs(file: str) -> bool:
    return file.startswith(_TORCH)

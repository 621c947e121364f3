"""Something to be done when a module was imported: at once where that has happened, else right after it does."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

__all__ = ["AfterImport"]


class AfterImport(importlib.abc.MetaPathFinder):
    """Stands first among the finders while it is installed, and finds nothing itself."""

    def __init__(self, actions: Mapping[str, Callable[[], None]]) -> None:
        self._actions = dict(actions)
        self._looking: set[str] = set()

    def install(self) -> None:
        for name in [name for name in self._actions if name in sys.modules]:
            self._actions.pop(name)()
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._actions or fullname in self._looking:
            return None
        self._looking.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, lambda: self._actions.pop(fullname, lambda: None)())
        return spec


class _Then(importlib.abc.Loader):
    """A loader that does something after another one has run the module."""

    def __init__(self, loader: importlib.abc.Loader, action: Callable[[], None]) -> None:
        self._loader, self._action = loader, action

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader  # whoever asks later finds the real one
        self._loader.exec_module(module)
        self._action()

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

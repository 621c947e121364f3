"""Actions that run once, right after a module was imported."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

__all__ = ["PostImportActions"]


class PostImportActions(importlib.abc.MetaPathFinder):
    """A finder in `sys.meta_path` that delegates to the other finders and adds an action to the loader."""

    def __init__(self, actions: Mapping[str, Callable[[], None]]) -> None:
        self._actions = dict(actions)
        self._searching: set[str] = set()

    def install(self) -> None:
        """Run the actions of modules that are loaded already, and wait for the other modules."""
        for name in [name for name in self._actions if name in sys.modules]:
            self._actions.pop(name)()
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._actions or fullname in self._searching:
            return None
        self._searching.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _LoaderWithAction(spec.loader, lambda: self._actions.pop(fullname, lambda: None)())
        return spec


class _LoaderWithAction(importlib.abc.Loader):
    """Wraps a loader and runs an action after it has executed the module."""

    def __init__(self, loader: importlib.abc.Loader, action: Callable[[], None]) -> None:
        self._loader, self._action = loader, action

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader  # later readers of the spec see the original loader
        self._loader.exec_module(module)
        self._action()

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

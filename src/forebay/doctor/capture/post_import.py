"""Actions that run once, directly after the import of a module."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

__all__ = ["PostImportActions"]


class PostImportActions(importlib.abc.MetaPathFinder):
    """A finder in `sys.meta_path` that runs an action after the import of a module.

    It delegates to the other finders and wraps the loader that they find. `actions` maps module names to actions.
    """

    def __init__(self, actions: Mapping[str, Callable[[], None]]) -> None:
        self._actions = dict(actions)
        self._searching: set[str] = set()  # modules for which the other finders are searching now

    def install(self) -> None:
        """Run the actions of loaded modules now, and the other actions after their imports."""
        for name in [name for name in self._actions if name in sys.modules]:
            self._actions.pop(name)()
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module, with a loader that also runs the module's action.

        Return None for modules without an action.
        """
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
    """A loader that executes a module with another loader and then runs an action."""

    def __init__(self, loader: importlib.abc.Loader, action: Callable[[], None]) -> None:
        self._loader, self._action = loader, action

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader  # code that reads `module.__spec__` must find the original loader
        self._loader.exec_module(module)
        self._action()

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

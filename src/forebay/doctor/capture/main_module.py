"""The `__main__` module of the profiled script, created as `python` creates it.

The module stays in `sys.modules` after the script has ended: `pickle`, the script's threads and its exit handlers still
need it.
"""

import builtins
import pkgutil
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import ModuleType

__all__ = ["install_module", "install_script"]


def install_script(path: str, arguments: Sequence[str], *, source: str | None = None) -> Callable[[], object]:
    """Install `__main__`, `sys.argv` and `sys.path` for a file; return a function that runs it.

    If `source` is given, the function runs this text in place of the file. As for `python`, the file may also be a
    directory or a zip file that contains `__main__.py`.
    """
    if pkgutil.get_importer(path) is not None:
        _install_main([path, *arguments], [path], str(Path(path).absolute()))
        return lambda: runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]  # private; `python FOLDER` uses it
    namespace = vars(_install_main([path, *arguments], [path], str(Path(path).resolve().parent)))
    file = path if Path(path).is_absolute() else f"{Path.cwd()}/{path}"  # like Python, keep the "./" of "./train.py"
    return lambda: _run_file(file, namespace, source)


def install_module(name: str, arguments: Sequence[str]) -> Callable[[], object]:
    """Install `__main__`, `sys.argv` and `sys.path` as for `python -m name`.

    Return a function that runs the module.
    """
    _install_main(["-m", *arguments], ["-m", name], str(Path.cwd()))
    return lambda: runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # Python itself calls it for -m


def _install_main(argv: list[str], command: list[str], folder: str) -> ModuleType:
    """Replace `__main__`, `sys.argv`, `sys.orig_argv` and `sys.path[0]`.

    In `sys.orig_argv`, `command` comes before the arguments of the script.
    """
    main = ModuleType("__main__")
    vars(main).update(__loader__=BuiltinImporter, __builtins__=builtins)
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    if "__mp_main__" in sys.modules:  # `multiprocessing`, imported before, made it an alias of the old `__main__`
        sys.modules["__mp_main__"] = main
    sys.argv, sys.orig_argv = argv, [sys.orig_argv[0], *command, *argv[1:]]
    if not sys.flags.safe_path:  # with `safe_path`, Python adds no folder to `sys.path`
        sys.path[0:1] = [folder]
    return main


def _run_file(file: str, namespace: dict[str, object], source: str | None) -> None:
    """Run a source file or a `.pyc` file, or its changed source, in the namespace of `__main__`."""
    loader = (SourcelessFileLoader if file.endswith(".pyc") else SourceFileLoader)("__main__", file)
    namespace.update(__file__=file, __cached__=None, __loader__=loader)
    if isinstance(loader, SourcelessFileLoader):
        code = loader.get_code("__main__")
    else:
        code = compile(loader.get_data(file) if source is None else source, file, "exec", dont_inherit=True)
    exec(code or "", namespace)  # nosec B102  # the script that the user runs

"""Public names are importable, documented and cheap to import. Modules that are loaded by name exist."""

import ast
import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.parsing import parse, source_facts
from tests.support.run_python import check_python

import forebay
from forebay.adapters.monitoring import FeedCollector, scalars, to_tensorboard, to_wandb
from forebay.core import registry
from forebay.doctor import Watch, watch
from forebay.feed.feed import Feed

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
FILES = sorted((SOURCE / "forebay").rglob("*.py"))
TARGETS = registry.all_targets()
NO_MODULES = {"forebay.sources", "forebay.handoff", "forebay.keras"}  # entry-point groups, and a logger
FRAMEWORKS = ("tensorflow", "keras", "torch", "jax")
LOADERS = {  # files that may call import_module; `registry.all_targets` lists their targets inside Forebay
    "forebay/adapters/readback/base.py",
    "forebay/adapters/readback/device_readers.py",
    "forebay/adapters/upload/upload_once.py",
    "forebay/cli/main.py",
    "forebay/core/nvml.py",
    "forebay/core/registry.py",
    "forebay/doctor/__init__.py",
    "forebay/doctor/capture/hooks/python.py",
    "forebay/doctor/capture/hooks/tensorflow/input_waits.py",
    "forebay/doctor/capture/hooks/torch/compile.py",
    "forebay/doctor/capture/session.py",
    "forebay/doctor/emulate/emulator.py",
    "forebay/doctor/rules/registry.py",
    "forebay/measure/bench/consumers/__init__.py",
    "forebay/measure/bench/contenders/__init__.py",
    "forebay/measure/bench/meters/__init__.py",
    "forebay/measure/bench/steps/__init__.py",
    "forebay/sources/formats/inflate.py",
    "forebay/transforms/workers/pickling.py",
}


@pytest.mark.parametrize("name", forebay.__all__)
def test_every_public_name_is_importable_and_documented(name):
    found = getattr(forebay, name)
    assert isinstance(found, str) or found.__doc__


def public_callables():
    """Return the public functions, and the public methods of the public classes."""
    named = {name: getattr(forebay, name) for name in forebay.__all__}
    classes = {"Pipeline": forebay.Pipeline, "Feed": Feed, "Readback": forebay.Readback, "Watch": Watch}
    methods = {
        f"{owner}.{name}": method
        for owner, each in classes.items()
        for name, method in inspect.getmembers(each, inspect.isfunction)
        if not name.startswith("_")
    }
    functions = {name: value for name, value in named.items() if inspect.isfunction(value)}
    constructed = {name: named[name] for name in ("ArraySpec", "Ragged", "Readback")}
    writers = {each.__name__: each for each in (FeedCollector, scalars, to_tensorboard, to_wandb)}
    return functions | constructed | methods | writers | {"watch": watch}


@pytest.mark.parametrize("name", sorted(public_callables()))
def test_every_public_argument_is_described(name):
    """`help()` and the documentation site show the section Args of the docstring."""
    described = public_callables()[name]
    parameters = [each for each in inspect.signature(described).parameters.values() if each.name != "self"]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    section = inspect.getdoc(described).partition("\nArgs:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^    (\*{0,2}\w+): \S", section, re.MULTILINE)
    assert found == [stars.get(each.kind, "") + each.name for each in parameters]


PUBLIC_OF_FRAMEWORKS = {  # public functions of modules that import a framework: the file, and the names in it
    "adapters/keras/keras_feed.py": ["KerasFeed", "backup_and_restore"],
    "adapters/ray.py": ["from_dataset"],
    "doctor/keras_callback.py": ["KerasWatch"],
}


@pytest.mark.parametrize("file", PUBLIC_OF_FRAMEWORKS)
def test_every_public_argument_of_a_framework_is_described(file):
    """Read the source, because an import would load the framework into this process."""
    node = parse((SOURCE / "forebay" / file).read_text())
    for name in PUBLIC_OF_FRAMEWORKS[file]:
        node = next(each for each in node.body if getattr(each, "name", None) == name)
    docstring = ast.get_docstring(node) or ""
    if isinstance(node, ast.ClassDef):
        node = next(each for each in node.body if getattr(each, "name", None) == "__init__")
    section = docstring.partition("\nArgs:\n")[2].partition("\n\n")[0]
    arguments = [each.arg for each in [*node.args.args, *node.args.kwonlyargs] if each.arg != "self"]
    assert re.findall(r"^    (\w+): \S", section, re.MULTILINE) == arguments


def test_all_is_sorted_and_complete():
    assert sorted(forebay.__all__) == forebay.__all__
    public = {name for name in vars(forebay) if not name.startswith("_")}
    modules = {name for name in public if f"forebay.{name}" in sys.modules}
    assert public - modules == set(forebay.__all__) - {"__version__"}


def test_importing_forebay_loads_no_framework_and_no_heavy_package():
    script = "import sys, forebay; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = check_python("-c", script).split()
    assert not set(loaded) & {"torch", "tensorflow", "jax", "keras", "cupy", "rich", "jinja2", "PIL", "grain", "ray"}


def test_importing_forebay_starts_no_thread():
    assert check_python("-c", "import threading, forebay; print(threading.active_count())").strip() == "1"


def test_every_module_has_a_docstring():
    assert [path for path in FILES if not (source_facts(path).docstring or "").partition("\n")[0].strip()] == []


OF_FRAMEWORKS = {  # modules whose examples need a framework; a process of its own runs the examples of each module
    "forebay.adapters.keras.keras_feed",
    "forebay.adapters.loader.feed_loader",
    "forebay.adapters.ray",
    "forebay.doctor.keras_callback",
}


def modules_with_examples():
    """Return the names of all modules of Forebay with a docstring example."""
    found = (path for path in FILES if re.search(r"^\s*>>> ", path.read_text(), re.MULTILINE))
    return {".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for path in found}


def test_modules_with_examples_of_frameworks_have_examples():
    assert modules_with_examples() >= OF_FRAMEWORKS


@pytest.mark.parametrize("name", sorted(modules_with_examples() - OF_FRAMEWORKS))
def test_docstring_examples_run(name):
    run_examples(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(OF_FRAMEWORKS))
def test_docstring_examples_with_a_framework_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCE), str(ROOT)]))
    check_python("-c", f"from tests.test_surface import run_examples; run_examples({name!r})")


def run_examples(name):
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner()
    for example in UnwrappingFinder().find(module, name):
        runner.run(example)
    results = runner.summarize(verbose=False)
    assert results.attempted > 0
    assert results.failed == 0


class UnwrappingFinder(doctest.DocTestFinder):
    """Also finds the examples of decorated functions, whose globals are those of the decorator's module."""

    def _from_module(self, module, found):
        return super()._from_module(module, inspect.unwrap(found) if inspect.isfunction(found) else found)


def test_python_m_forebay_runs():
    done = subprocess.run([sys.executable, "-m", "forebay", "--version"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("forebay ")


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


PAGES_WITHOUT_A_FRAMEWORK = (
    "augmentation",
    "caching",
    "choosing",
    "combining",
    "frames",
    "images",
    "lengths",
    "maps",
    "windows",
)  # `tests/docs/test_pages.py` runs the examples of the other pages


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_WITHOUT_A_FRAMEWORK)
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    variables = {"__name__": "__main__"}
    for block in python_blocks(ROOT / "docs" / f"{page}.md"):
        exec(block, variables)


@pytest.mark.slow
def test_the_examples_of_the_readme_and_the_tour_run():
    """All examples run in one process, so that it imports each framework once.

    The examples of the README share their variables. Each example of the tour has its own.
    """
    readme = "\n".join(python_blocks(ROOT / "README.md"))
    examples = [readme, *python_blocks(ROOT / "docs" / "tour.md")]
    assert len(examples) >= 6
    calls = [f"exec({block!r}, {{'__name__': '__main__'}})" for block in examples]
    check_python("-c", "\n".join(["import os", "os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'", *calls]))


README_LINES = 150  # a reader should find the doctor, the feed and their numbers within one minute


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_commands_of_a_page_make_a_clone_and_an_environment(page):
    commands = "\n".join(re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)).splitlines()
    wanted = [line for line in commands if re.match(r"git clone|cd |python3 -m venv|pip install", line)]
    assert [line.split(" ")[0] for line in wanted[:4]] == ["git", "cd", "python3", "pip"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "package",
    ["engines.cuda", "adapters.upload.cuda", "measure.probe.cuda", "adapters.readback.cuda", "measure.bench.dma_peak"],
)
def test_gpu_modules_can_be_imported_without_a_gpu(package):
    script = f"""
import importlib, pkgutil
found = importlib.import_module("forebay.{package}")
for _, name, _ in pkgutil.walk_packages(getattr(found, "__path__", []), found.__name__ + "."):
    importlib.import_module(name)
print("imported")
"""
    assert check_python("-c", script).strip() == "imported"


def test_the_page_how_it_works_is_short():
    assert len((ROOT / "docs" / "how-it-works.md").read_text().splitlines()) <= 120


DOCUMENTS = [
    ROOT / "AGENTS.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_file_that_a_document_names_exists(document):
    """A path starts at the repository, at the package, or beside the document."""
    text = document.read_text()
    named = {
        *re.findall(r"`([\w./-]+\.(?:py|c|cu|json|md|toml))`", text),
        *re.findall(r"\]\(([\w./-]+\.(?:md|py|png))(?:#[\w-]+)?\)", text),
    }
    places = (ROOT, ROOT / "src" / "forebay", document.parent)
    examples = {"train.py", "train_ddp.py", "before.json", "after.json", "now.json", "main.json"}
    missing = [name for name in sorted(named - examples) if not any((place / name).exists() for place in places)]
    templates = [name for name in missing if re.search(r"[A-Z]{4,}", name)]
    assert missing == templates


# Modules that are loaded by name


def module_file(module):
    """Return the source file of a module of Forebay without importing it."""
    path = SOURCE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def top_level_names(path):
    """Return the names that a module defines at its top level."""
    body = parse(path.read_text()).body
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assigned = (name for node in body if isinstance(node, ast.Assign) for name in node.targets)
    return defined | {name.id for name in assigned if isinstance(name, ast.Name)}


def test_every_target_of_the_registry_exists():
    targets = [target.partition(":") for target in TARGETS]
    assert [module for module, _, _ in targets if not module_file(module).is_file()] == []
    assert [
        (module, name) for module, _, name in targets if name and name not in top_level_names(module_file(module))
    ] == []


@pytest.mark.slow
def test_every_target_that_needs_no_framework_can_be_loaded():
    """core/registry_cases.py loads the other targets, in the processes of their frameworks."""
    targets = [target for target in TARGETS if not any(name in target for name in FRAMEWORKS)]
    script = f"""
from forebay.core import registry
from forebay.doctor import Watch, watch
from forebay.feed.feed import Feed
for target in {targets}:
    try:
        registry.load(target)
    except ModuleNotFoundError as error:
        if error.name.startswith("forebay"):
            raise
print("loaded")
"""
    assert check_python("-c", script).splitlines()[-1] == "loaded"


def test_every_module_of_forebay_named_in_a_string_exists():
    strings = {text for path in FILES for text in source_facts(path).strings}
    named = {text for text in strings if re.fullmatch(r"forebay(\.\w+)+(:\w+)?", text)}
    modules = {text.partition(":")[0] for text in named - NO_MODULES}
    assert not {module for module in modules if not module_file(module).is_file()}


def test_only_the_registry_and_the_listed_loaders_import_by_name():
    loaders = {path.relative_to(SOURCE).as_posix() for path in FILES if "import_module(" in path.read_text()}
    assert loaders <= LOADERS

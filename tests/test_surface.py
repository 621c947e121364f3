"""The public face: what is promised is importable, documented, and light."""

import ast
import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forebay

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "src" / "forebay").rglob("*.py"))


def run(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", forebay.__all__)
def test_every_public_name_is_importable_and_documented(name):
    found = getattr(forebay, name)
    assert isinstance(found, str) or found.__doc__


def test_all_is_sorted_and_whole():
    assert sorted(forebay.__all__) == forebay.__all__
    public = {name for name in vars(forebay) if not name.startswith("_")}
    modules = {name for name in public if f"forebay.{name}" in sys.modules}
    assert public - modules == set(forebay.__all__) - {"__version__"}


def test_importing_forebay_loads_no_framework_and_nothing_heavy():
    loaded = run("import sys, forebay; print(*sorted({name.partition('.')[0] for name in sys.modules}))").split()
    assert not set(loaded) & {"torch", "tensorflow", "jax", "keras", "cupy", "rich", "jinja2", "PIL", "grain", "ray"}


def test_importing_forebay_starts_no_thread():
    assert run("import threading, forebay; print(threading.active_count())").strip() == "1"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT / "src").as_posix())
def test_every_module_says_in_its_first_line_what_it_is_for(path):
    documentation = ast.get_docstring(ast.parse(path.read_text()))
    assert documentation
    assert documentation.splitlines()[0].strip()


@pytest.mark.parametrize(
    "name",
    [
        "forebay.core.spec",
        "forebay.pipeline.pipeline",
        "forebay.feed.feed",
        "forebay.core.shared_memory",
        "forebay.adapters.upload.upload_once",
        "forebay.adapters.readback.readback",
        "forebay.adapters.readback.all_finite",
    ],
)
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_the_package_runs_by_name():
    done = subprocess.run([sys.executable, "-m", "forebay", "--version"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("forebay ")


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


@pytest.mark.parametrize("block", python_blocks(ROOT / "README.md"))
def test_examples_in_the_readme_run(block):
    run("import os\nos.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n" + block)


@pytest.mark.parametrize(
    "package",
    ["engines.cuda", "adapters.upload", "measure.probe.cuda", "adapters.readback.cuda", "measure.bench.dma_peak"],
)
def test_what_needs_a_gpu_can_be_imported_without_one(package):
    script = f"""
import importlib, pkgutil
found = importlib.import_module("forebay.{package}")
for _, name, _ in pkgutil.walk_packages(getattr(found, "__path__", []), found.__name__ + "."):
    importlib.import_module(name)
print("imported")
"""
    assert run(script).strip() == "imported"

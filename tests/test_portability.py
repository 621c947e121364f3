"""Imports and CPU feeds need no name that only Linux has. macOS and Windows are simulated, not run."""

import subprocess
import sys

import pytest
from tests.support.paths import ROOT

SYSTEMS = ("darwin", "win32")
# The imports of these packages depend on the system.
LEFT_OUT = (
    *("aiohttp", "cuda", "cupy", "grain", "jax", "keras", "nvidia", "ray", "spdl", "tensorflow", "torch"),
    *("torchvision", "transformers"),
)
FILES = sorted((ROOT / "src" / "forebay").rglob("*.py"))
MODULES = [
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    for path in FILES
    if path.stem != "__main__"
]


def run(system, script):
    """Run a script in a new process that looks like another system."""
    script = f"from tests.support.other_system import simulate\nimport sys\nsimulate({system!r})\n{script}"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_feed_of_arrays_delivers_every_row(system):
    script = """
import numpy as np
import forebay as fb
pipeline = fb.from_arrays(np.arange(1000)).map(lambda row: row + 1, where="thread").shuffle(seed=0).batch(64)
with pipeline.feed("numpy") as feed:
    print(sum(int(batch.sum()) for batch in feed), len(feed.explain()) > 0)
"""
    assert run(system, script) == "500500 True\n"


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_feed_of_files_delivers_every_row(system, tmp_path):
    script = f"""
import numpy as np
import forebay as fb
from pathlib import Path
path = Path({str(tmp_path)!r}) / "rows.npy"
np.save(path, np.arange(1000.0))
with fb.from_files(path).shuffle(seed=0).batch(64).feed("numpy") as feed:
    print(sum(int(batch.sum()) for batch in feed))
"""
    assert run(system, script) == "499500\n"


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_module_can_be_imported(system):
    """Modules that import a package of LEFT_OUT are left out."""
    script = f"""
import importlib
sys.modules.update(dict.fromkeys({LEFT_OUT}))  # None makes the import fail
for name in {MODULES}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {LEFT_OUT}:
            print(name, repr(error))
    except Exception as error:
        print(name, repr(error))
"""
    assert run(system, script) == ""


def test_a_cache_folder_says_which_systems_it_needs(tmp_path):
    script = f"""
import numpy as np
import forebay as fb
try:
    with fb.from_arrays(np.arange(10)).map(lambda row: row + 1).cache({str(tmp_path)!r}).batch(5).feed("numpy") as feed:
        next(iter(feed))
except fb.ForebayError as error:
    print(error)
"""
    assert "Linux or macOS" in run("win32", script)

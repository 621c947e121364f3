"""The code blocks marked `python gpu` on the documentation pages run on a GPU.

The block on the page about several devices is marked `python gpu2`, and needs two GPUs.
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from PIL import Image
from tests.gpu.processes import SHARING
from tests.support.paths import ROOT

NEEDS = {"coming-from/dali": "nvidia.dali", "get-started/cupy": "cupy", "images": "torch"}  # page: package


def is_installed(package):
    return find_spec(package.partition(".")[0]) is not None and find_spec(package) is not None


PAGES = [
    pytest.param(page, marks=pytest.mark.skipif(not is_installed(name), reason=f"{name} is not installed"))
    for page, name in NEEDS.items()
]
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300), pytest.mark.usefixtures("device")]


@pytest.fixture
def folder(tmp_path):
    """A folder with the image files that the page about images reads."""
    for label in ("cat", "dog"):
        (tmp_path / "train" / label).mkdir(parents=True)
        for number in range(4):
            pixels = np.full((300, 400, 3), 40 * number, np.uint8)
            Image.fromarray(pixels).save(tmp_path / "train" / label / f"{number}.jpg")
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page, folder):
    blocks = re.findall(r"^```python gpu\n(.*?)^```", (ROOT / "docs" / f"{page}.md").read_text(), re.DOTALL | re.M)
    assert blocks
    script = "\n".join(["import forebay as fb", *blocks])
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | SHARING, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr

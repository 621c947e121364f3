"""Code blocks of the pages that are parts of scripts.

Each block runs after lines that make its variables.

`tests/gpu/test_pages.py` runs the blocks marked `python gpu` on a GPU. This file only compiles these blocks.
"""

import re

import pytest
from tests.docs.test_pages import DOCS, run_script

KERAS = """
import keras
import numpy as np
import forebay as fb
x, y = np.random.rand(1024, 8).astype("float32"), np.random.rand(1024, 1).astype("float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
dataset = [(x[:64], y[:64])]
train_step = lambda *batch: model.train_on_batch(*batch)
"""
GPU_PAGES = ("coming-from/dali", "devices", "get-started/cupy", "images")


def blocks(page, language):
    pattern = rf"^```{language}\n(.*?)^```"
    return re.findall(pattern, (DOCS / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.long
def test_the_parts_of_scripts_on_the_page_of_questions_run(tmp_path):
    parts = blocks("questions", "python")
    assert len(parts) == 2
    run_script(KERAS + "\n".join(parts), tmp_path)


@pytest.mark.long
def test_the_parts_about_keras_on_the_page_of_trainers_run(tmp_path):
    parts = [part for part in blocks("trainers", "py") if "model" in part and "ray.train" not in part]
    assert len(parts) == 3
    run_script(KERAS + "\n".join(parts), tmp_path)
    assert len(list(tmp_path.glob("feed-*.json"))) == 3


def test_the_page_of_trainers_has_no_other_part():
    """`tests/adapters/trainers/ray_train_cases.py` runs the part about Ray Train."""
    others = [part for part in blocks("trainers", "py") if "model" not in part]
    assert others == []


@pytest.mark.parametrize("page", GPU_PAGES)
def test_the_blocks_that_need_a_gpu_compile(page):
    parts = blocks(page, r"python gpu\d?")
    assert parts
    for part in parts:
        compile(part, page, "exec")


def test_no_other_page_has_a_block_that_needs_a_gpu():
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    assert {page for page in pages if blocks(page, r"python gpu\d?")} == set(GPU_PAGES)

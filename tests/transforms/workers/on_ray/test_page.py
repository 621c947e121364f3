"""The examples on the page about Ray run on a cluster of this machine."""

import re

import numpy as np
import ray
from tests.support.paths import ROOT

import forebay as fb

BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "ray.md").read_text(), re.DOTALL | re.MULTILINE)


def run_block(number, changes, variables):
    """Run an example after `changes`, which replace parts of its text, such as the path of its data."""
    example = BLOCKS[number]
    for shown, here in changes.items():
        assert shown in example
        example = example.replace(shown, here)
    exec(example, variables)
    return variables


def save_rows(folder):
    for part in range(2):
        np.savez(folder / f"{part}.npz", x=np.arange(part * 300, (part + 1) * 300))


def test_the_page_has_three_examples():
    assert len(BLOCKS) == 3


def test_the_first_example_maps_all_rows_of_the_files(cluster, tmp_path):
    save_rows(tmp_path)
    seen = []
    changes = {
        'ray.init(address="auto")': "pass",  # the fixture has connected already
        "/shared/train": str(tmp_path),
        '.feed("torch")': '.feed("numpy")',
        "        ...": '        seen.extend(batch["x"].tolist())',
    }
    run_block(0, changes, {"augment": lambda row: row, "seen": seen})
    assert sorted(seen) == list(range(600))


def test_the_second_example_reads_a_dataset(cluster, tmp_path):
    ray.data.range(600).write_parquet(str(tmp_path))
    pipeline = run_block(1, {"s3://bucket/train": str(tmp_path)}, {"ray": ray})["pipeline"]
    with pipeline.feed("numpy") as feed:
        seen = [row for batch in feed for row in batch["id"].tolist()]
    assert sorted(seen) == list(range(600))


def test_the_example_in_ray_train_reads_the_rows_of_its_rank(cluster, tmp_path, monkeypatch):
    class Context:  # the context of worker 1 of 2; `test_train.py` starts real workers
        get_world_rank, get_world_size = staticmethod(lambda: 1), staticmethod(lambda: 2)

    save_rows(tmp_path)
    seen = []
    monkeypatch.setattr("ray.train.get_context", Context)
    changes = {
        "/shared/train": str(tmp_path),
        ".batch(256,": ".batch(100,",
        '.feed("torch")': '.feed("numpy")',
        "            ...": '            seen.extend(batch["x"].tolist())',
    }
    variables = run_block(2, changes, {"ray": ray, "fb": fb, "augment": lambda row: row, "seen": seen})
    variables["train_loop"]({})
    assert len(set(seen)) == len(seen) == 300

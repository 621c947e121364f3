"""The example on the page about object stores runs on an S3 server on loopback."""

import re

import numpy as np
from tests.support.paths import ROOT


def test_the_example_reads_all_rows_of_a_bucket(bucket, tmp_path):
    for part in range(2):
        bucket.put_npy(f"train/{part}.npy", np.arange(part * 300, (part + 1) * 300))
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "remote.md").read_text(), re.DOTALL | re.M)
    changes = {"s3://bucket": bucket.url("").rstrip("/"), "/scratch/forebay": str(tmp_path / "cache")}
    for shown, here in changes.items():
        assert shown in example
        example = example.replace(shown, here)
    variables = {"options": bucket.options}
    exec(example.replace('{"profile": "training"}', "options"), variables)
    with variables["pipeline"].feed("numpy") as feed:
        assert sorted(np.concatenate([batch.copy() for batch in feed]).tolist()) == list(range(600))

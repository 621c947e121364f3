"""Progress lines of methods that compute for seconds, also if they read no row."""

import numpy as np
import pytest

import forebay as fb
from forebay.core.progress_line import ProgressLine

TEXTS = fb.from_ragged(np.arange(9), [0, 3, 4, 9])
METHODS = {
    "sample": (lambda: TEXTS.sample(weights=[1, 2, 3]), "sample() prepares draws from 3 weights"),
    "pack": (lambda: TEXTS.pack(6), "pack() packs 3 texts into rows of 6 tokens"),
    "token batches": (lambda: TEXTS.batch(tokens=6, pad=0), "batch(tokens=...) sorts 3 rows by length"),
}


@pytest.mark.parametrize(("call", "text"), METHODS.values(), ids=METHODS)
def test_the_computation_has_a_progress_line(call, text, monkeypatch):
    shown = []
    monkeypatch.setattr(ProgressLine, "__enter__", lambda line: shown.append(line.text) or line)
    call()
    assert shown == [text]

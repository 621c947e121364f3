"""Use an installed wheel of Forebay: a feed, the C libraries, and the doctor with a CPU script of JAX.

    python .ci/use_wheel.py present|missing

The argument says whether the wheel has the C libraries.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import forebay as fb
from forebay.doctor.capture.device.cupti import open_buffers
from forebay.errors import DeviceError
from forebay.order.row_numbers import load_draw_alias, load_permute
from forebay.sources.formats.pixel_resize import load_resize
from forebay.sources.row_gather import load_library as load_row_gather

SCRIPT = """
import jax
import numpy as np

rows = np.random.default_rng(0).random((64, 512, 32), dtype=np.float32)
weights = np.ones((32, 8), np.float32)
step = jax.jit(lambda weights, batch: weights - 0.01 * jax.grad(lambda w: ((batch @ w) ** 2).mean())(weights))
for epoch in range(4):
    for batch in rows:
        weights = step(weights, batch).block_until_ready()
"""


def run_feed() -> None:
    with fb.from_arrays(np.arange(1000)).shuffle(seed=0).batch(64).feed("numpy") as feed:
        assert sum(int(batch.sum()) for batch in feed) == 499500


def load_libraries(expected: str) -> None:
    try:
        found = "present" if open_buffers().forebay_record_nbytes() else "empty"
    except DeviceError as error:
        found = "missing"
        print(error)
    assert found == expected, found
    loads = load_permute, load_draw_alias, load_row_gather, load_resize
    assert {load() is not None for load in loads} == {expected == "present"}


def run_doctor() -> None:
    Path("train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "forebay", "doctor", "--json", "report.json", "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(Path("report.json").read_text()), "the report is empty"
    print(done.stdout)


if __name__ == "__main__":
    assert not any(map(shutil.which, ("cc", "gcc", "clang"))), "remove the compilers from PATH."
    print(f"forebay {fb.__version__} in {Path(fb.__file__).parent}, Python {sys.version.split()[0]}")
    run_feed()
    load_libraries(sys.argv[1])
    run_doctor()

"""Runs of trainers on several ranks, each in its own process: `check_ranks("lightning", folder)`.

Each rank runs this file as a script, which calls `run_on_rank` of the trainer's cases. `run_on_rank` returns two
models: one of a whole run, and one of a run that resumed after `RESUMED_STEP`. The script writes their rows and losses
to a file.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

RANKS, STEPS_OF_RANK, EPOCHS_OF_RANK = 2, 3, 2  # 70 rows in steps of two batches of 16 rows
RESUMED_STEP = 4  # in the second epoch


def check_ranks(trainer, folder):
    """Fail unless the ranks together see every row once in each epoch, and resume exactly."""
    results = run_ranks(trainer, folder)
    wholes, rests = [whole for whole, _ in results], [rest for _, rest in results]
    assert {len(whole["rows"]) for whole in wholes} == {EPOCHS_OF_RANK * STEPS_OF_RANK}
    for first in range(0, EPOCHS_OF_RANK * STEPS_OF_RANK, STEPS_OF_RANK):
        seen = [row for whole in wholes for rows in whole["rows"][first : first + STEPS_OF_RANK] for row in rows]
        assert sorted(seen) == list(range(70))
    for whole, rest in zip(wholes, rests, strict=True):
        assert rest == {name: values[RESUMED_STEP:] for name, values in whole.items()}


def run_ranks(trainer, folder):
    """Run a trainer on some ranks, and return what each rank wrote."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    module = ["-m", "tests.adapters.trainers.ranked_runs", trainer, str(folder)]
    done = subprocess.run([*command, *module], cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return [json.loads((Path(folder) / f"rank{rank}.json").read_text()) for rank in range(RANKS)]


if __name__ == "__main__":
    trainer, folder = sys.argv[1], Path(sys.argv[2])
    cases = importlib.import_module(f"tests.adapters.trainers.{trainer}_cases")
    results = [{"rows": net.rows, "losses": net.losses} for net in cases.run_on_rank(folder)]
    (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(results))

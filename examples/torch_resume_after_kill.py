"""PyTorch: kill a training process in the middle of an epoch, and continue with the next row."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import forebay as fb

ROWS, BATCH_ROWS, KILL_AFTER = 1_000, 50, 7  # the first process dies after its 7th batch


def train(folder: Path, *, kill: bool) -> None:
    """Train one epoch from the last checkpoint. Write the number of every used row to a file."""
    pipeline = fb.from_arrays(np.arange(ROWS)).shuffle(seed=0).batch(BATCH_ROWS)
    weight, checkpoint = torch.zeros(1), folder / "checkpoint.pt"
    with pipeline.feed("torch", device="cpu") as feed, (folder / "rows.txt").open("a") as log:
        if checkpoint.exists():
            saved = torch.load(checkpoint)
            weight = saved["weight"]
            feed.load_state_dict(saved["feed"])  # the position in the epoch, and its order
            print(f"  continue: {saved['batches']} batches are done")
        for number, rows in enumerate(feed, start=1):
            weight += rows.float().mean()
            log.write("".join(f"{row}\n" for row in rows.tolist()))
            log.flush()
            torch.save({"weight": weight, "feed": feed.state_dict(), "batches": number}, checkpoint)
            if kill and number == KILL_AFTER:
                print(f"  killed after batch {number}", flush=True)
                os._exit(1)  # no cleanup, as after a power failure
    print(f"  the epoch is complete, weight {weight.item():.1f}")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for process in ("first", "second"):
            print(f"{process} process:", flush=True)
            subprocess.run([sys.executable, __file__, process, name], check=process == "second")
        rows = [int(line) for line in (folder / "rows.txt").read_text().split()]
    print(f"Both processes together used {len(rows)} rows, {len(set(rows))} of them different.")
    print(f"Look at both numbers: the array has {ROWS} rows, so no row was lost or used twice.")
    print("This script uses no GPU. With a GPU, both numbers are the same: a state is a position in the order of rows.")
    assert sorted(rows) == list(range(ROWS))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        train(Path(sys.argv[2]), kill=sys.argv[1] == "first")
    else:
        main()

"""Compares the diagnoses of the scripts in situations/ with their snapshots.

python -m tests.doctor.situation_snapshots [--write]
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

__all__ = ["MODES", "SITUATIONS", "to_snapshot", "load_snapshots", "mode_of", "profile_situations"]

SITUATIONS = Path(__file__).parent / "situations"
SNAPSHOTS = SITUATIONS / "snapshots.json"
MODES = ("eager", "session")  # one process each; the second has no eager execution
SETTINGS = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
MAX_SECONDS = 600  # for all scripts of one mode

Summary = dict[str, Any]


def mode_of(name: str) -> str:
    """Return the mode in which a script runs, by its name."""
    return "session" if "_session_" in name else "eager"


def load_snapshots() -> dict[str, Summary]:
    snapshots: dict[str, Summary] = json.loads(SNAPSHOTS.read_text())
    return snapshots


def profile_situations(folder: Path, settings: dict[str, str]) -> dict[str, Summary]:
    """Profile every script and return the summaries of the diagnoses by script.

    `settings` are environment variables. The modes run one after the other: parallel processes would disturb each
    other.
    """
    summaries: dict[str, Summary] = {}
    for mode in MODES:
        file = folder / f"{mode}.json"
        done = subprocess.run(
            [sys.executable, "-m", "tests.doctor.watch_situations", mode, str(file)],
            env=os.environ | SETTINGS | settings,
            cwd=SITUATIONS.parent.parent.parent,
            capture_output=True,
            text=True,
            timeout=MAX_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        summaries |= json.loads(file.read_text())
    return summaries


def to_snapshot(summary: Summary, snapshot: Summary) -> Summary:
    """Convert a summary to the form of a snapshot: omit optional rules, and rename rules that `same_as` lists."""
    same_as, optional = snapshot.get("same_as", {}), snapshot.get("optional", ())
    findings = [(same_as.get(rule, rule), line) for rule, line in summary["findings"] if rule not in optional]
    rules = [rule for rule, _ in findings]
    return snapshot | {"loop": summary["loop"], "rules": rules, "line": findings[0][1] if findings else None}


def _update(*, write: bool) -> None:
    """Print the diagnoses that differ from their snapshots; with `write`, replace the snapshots."""
    snapshots, machine = load_snapshots(), _machine()
    with TemporaryDirectory() as folder:
        now = profile_situations(Path(folder), {})
    for name, summary in now.items():
        snapshot = snapshots.setdefault(name, {"why": "", "cpu": {}, "gpu": {}})
        diagnosis = to_snapshot(summary, snapshot[machine])
        if diagnosis != snapshot[machine]:
            sys.stdout.write(f"{name}\n  was {snapshot[machine]}\n  is  {diagnosis}\n")
            snapshot[machine] = diagnosis
    if write:
        SNAPSHOTS.write_text(_to_json({name: snapshots[name] for name in sorted(now)}))


def _machine() -> str:
    """Return the key of the snapshots that apply to this machine: "cpu" or "gpu"."""
    code = "import tensorflow as tf; print(bool(tf.config.list_physical_devices('GPU')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return "gpu" if "True" in done.stdout else "cpu"


def _to_json(snapshots: dict[str, Summary]) -> str:
    """Format the snapshots with one line per reason and per kind of machine."""
    entries = []
    for name, snapshot in snapshots.items():
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in snapshot.items())
        entries.append(f" {json.dumps(name)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(entries) + "\n}\n"


if __name__ == "__main__":
    _update(write="--write" in sys.argv[1:])

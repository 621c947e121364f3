"""Runs every script with and without the doctor, and compares predictions with cured twins.

    python tests/doctor/cures/run_all.py OUT --frameworks torch,jax --only read_back

The program writes the capture and the diagnosis of every script, and table.json, to OUT.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
SOURCES = FOLDER.parents[2] / "src"
FRAMEWORKS = ("torch", "tensorflow", "jax", "cupy")

Row = dict[str, Any]


def main() -> int:
    arguments = _arguments()
    rows: list[Row] = []
    for script in _scripts(arguments.frameworks.split(","), arguments.only):
        row = _run_both_ways(script, arguments.out, arguments.seconds_each)
        rows.append(row)
        _print(_format_row(row))
        (arguments.out / "table.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for row in _compare_with_twins(rows):
        _print(row)
    return int(any(row["problems"] for row in rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the scripts and their cured twins, with and without the doctor.")
    parser.add_argument("out", type=Path, help="folder for captures, diagnoses and table.json")
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS), help="comma-separated list (default: all)")
    parser.add_argument("--only", metavar="NAME", help="run only the scripts with this name and their cured twins")
    parser.add_argument("--seconds-each", type=float, default=60.0, metavar="S", help="time limit per run, in seconds")
    arguments = parser.parse_args()
    unknown = set(arguments.frameworks.split(",")) - set(FRAMEWORKS)
    if unknown:
        parser.error(f"there are no scripts for {', '.join(sorted(unknown))}: only for {', '.join(FRAMEWORKS)}")
    arguments.out = arguments.out.absolute()
    arguments.out.mkdir(parents=True, exist_ok=True)
    return arguments


def _scripts(frameworks: Iterable[str], only: str | None) -> Iterator[Path]:
    for framework in frameworks:
        for script in sorted((FOLDER / framework).glob("*.py")):
            if only in (None, script.stem.removesuffix("_cured")):
                yield script


def _run_both_ways(script: Path, out: Path, seconds: float) -> Row:
    """Run a script with and without the doctor. Return both step times and the diagnosis."""
    framework, name = script.parent.name, script.stem
    (out / framework).mkdir(exist_ok=True)
    capture, diagnosis = out / framework / f"{name}.gz", out / framework / f"{name}.json"
    diagnosis.unlink(missing_ok=True)  # if this run fails, do not read the diagnosis of an earlier run
    doctor = ["-m", "forebay", "doctor", "--capture", str(capture), "--json", str(diagnosis)]
    plain_ms, plain_problem = _run([str(script)], framework, seconds)
    doctor_ms, doctor_problem = _run([*doctor, str(script)], framework, seconds)
    return {
        "framework": framework,
        "name": name,
        "plain_ms": plain_ms,
        "doctor_ms": doctor_ms,
        "problems": [problem for problem in (plain_problem, doctor_problem) if problem],
        **_read_diagnosis(diagnosis),
    }


def _run(command: Sequence[str], framework: str, seconds: float) -> tuple[float | None, str]:
    """Return the step time in ms and the problem, if any. After a failure, the other scripts still run."""
    full = [sys.executable, *command]
    try:
        ran = subprocess.run(
            full, env=_environment(framework), capture_output=True, text=True, errors="replace", timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return None, f"took over {seconds:.0f} s"
    results = [line for line in ran.stdout.splitlines() if line.startswith('{"step_ms"')]
    step_ms = json.loads(results[-1])["step_ms"] if results else None
    if ran.returncode == 0 and results:
        return step_ms, ""
    last = (ran.stderr.strip().splitlines() or ["no step was timed"])[-1]
    return step_ms, f"exit {ran.returncode}: {last}"


def _environment(framework: str) -> dict[str, str]:
    """Add the stopwatch to the path, and a stand-in for CuPy if CuPy is not installed."""
    folders = [FOLDER / "timing", SOURCES]
    if framework == "cupy" and "cupy" not in packages_distributions():
        folders.append(FOLDER.parent / "stand_in")
    path = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "TF_CPP_MIN_LOG_LEVEL": "3"}


def _read_diagnosis(diagnosis: Path) -> Row:
    """Return the main finding, its line, and the predicted step time in ms after its first cure."""
    if not diagnosis.is_file():
        return {"seen_ms": None, "rule": None, "line": None, "cure": None, "predicted_ms": None, "others": []}
    document = json.loads(diagnosis.read_text(encoding="utf-8"))
    step, findings = document["step_seconds"], document["findings"]
    main = findings[0] if findings else {"rule": None, "line": None, "cures": []}
    cure = main["cures"][0] if main["cures"] else None
    return {
        "seen_ms": step and 1e3 * step,
        "rule": main["rule"],
        "line": main["line"],
        "cure": cure and cure["title"],
        "predicted_ms": cure and [1e3 * seconds for seconds in cure["step_seconds"]],
        "others": [f"{finding['rule']}:{finding['line']}" for finding in findings[1:]],
    }


def _format_row(row: Row) -> str:
    finding = f"{row['rule']}:{row['line']} -> {_interval(row)}" if row["rule"] else "nothing found"
    times = f"plain {_ms(row['plain_ms'])}  doctor {_ms(row['doctor_ms'])}  seen {_ms(row['seen_ms'])}"
    return f"{row['framework']:<10} {row['name']:<26} {times}  {finding}  {'; '.join(row['problems'])}".rstrip()


def _compare_with_twins(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line per pair: the step time, its prediction, and the step time of the cured twin."""
    rows_by_name = {(row["framework"], row["name"]): row for row in rows}
    for (framework, name), row in rows_by_name.items():
        cured = rows_by_name.get((framework, f"{name}_cured"))
        if cured is not None:
            times = f"{_ms(row['plain_ms'])} -> predicted {_interval(row)}, cured {_ms(cured['plain_ms'])}"
            yield f"{framework:<10} {name:<20} {times}  ({row['rule']}: {row['cure']})"


def _interval(row: Row) -> str:
    if row["predicted_ms"] is None:
        return "no cure"
    low, high = row["predicted_ms"]
    return f"{low:.2f} to {high:.2f} ms"


def _ms(value: float | None) -> str:
    return "      -" if value is None else f"{value:7.2f}"


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

"""Compare the `forebay bench` results of two checkouts, measured alternately.

    python benchmarks/compare_checkouts.py OLD NEW --case rows-1024 --rounds 5 [--device cuda] [--save FILE]

Each round has three runs: of OLD, of NEW, and of OLD again. For every result of Forebay, the table has two columns:

    new/old   result of NEW, divided by the mean of both runs of OLD: the median of all rounds
    old/old   second run of OLD, divided by the first: the smallest and the largest ratio of all rounds

`old/old` shows the noise of the machine. A ratio above 1 in `new/old` means that NEW is better. For results that are
not per second, such as milliseconds or MiB, less is better, so the script inverts them first.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

Figures = dict[tuple[str, str, str], float]  # (case, row label, column) -> figure; larger is better


def measure(checkout: Path, arguments: argparse.Namespace) -> Figures:
    """Run one round of `forebay bench` in a checkout, and return the figures of Forebay."""
    command = [sys.executable, "-m", "forebay", "bench", "--json", "--repeats", "1", "--device", arguments.device]
    command += [part for case in arguments.case for part in ("--case", case)]
    command += [part for name in arguments.contender for part in ("--contender", name)]
    command += ["--quick"] if arguments.quick else []
    paths = [str((checkout / "src").resolve()), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    completed = subprocess.run(command, env=environment, cwd=checkout, stdout=subprocess.PIPE, text=True, check=True)
    return read_figures(json.loads(completed.stdout))


def read_figures(document: dict) -> Figures:
    """Return the medians of Forebay's rows; medians that are not per second are inverted."""
    figures: Figures = {}
    for case in document["cases"]:
        units = {column["name"]: column["unit"] for column in case["case"]["columns"]}
        for row in case["rows"]:
            if row["status"] != "measured" or "forebay" not in row["label"]:
                continue
            for column, cell in row["columns"].items():
                if cell["median"]:
                    value = cell["median"] if units[column].endswith("/s") else 1 / cell["median"]
                    figures[case["case"]["name"], row["label"], column] = value
    return figures


def compare(rounds: list[tuple[Figures, Figures, Figures]]) -> list[dict]:
    """Return one row per figure, from the rounds in which all three runs measured it."""
    rows = []
    for key in sorted({key for runs in rounds for key in set.intersection(*map(set, runs))}):
        complete = [tuple(run[key] for run in runs) for runs in rounds if all(key in run for run in runs)]
        ratios = [new / ((old + old_again) / 2) for old, new, old_again in complete]
        noise = sorted(old_again / old for old, _, old_again in complete)
        rows.append(
            {
                "case": key[0],
                "row": key[1],
                "column": key[2],
                "rounds": len(complete),
                "new_over_old": round(statistics.median(ratios), 3),
                "ratios": [round(ratio, 3) for ratio in ratios],
                "old_over_old": [round(noise[0], 3), round(noise[-1], 3)],
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="folder of the old checkout")
    parser.add_argument("new", type=Path, help="folder of the new checkout")
    parser.add_argument("--case", action="append", default=[], help="measure only this case; repeatable")
    parser.add_argument("--contender", action="append", default=[], help="measure only this contender; repeatable")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, each of three runs (default: 5)")
    parser.add_argument("--quick", action="store_true", help="run `forebay bench --quick`")
    parser.add_argument("--save", type=Path, help="write the comparison as JSON")
    arguments = parser.parse_args()
    rounds = []
    for _ in range(arguments.rounds):
        old, new, old_again = (measure(path, arguments) for path in (arguments.old, arguments.new, arguments.old))
        rounds.append((old, new, old_again))
        rows = compare(rounds)
        if arguments.save:  # after every round, so that an interrupted run keeps its results
            arguments.save.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{'case':18} {'row':28} {'column':10} {'new/old':>8}   old/old")
    for row in rows:
        low, high = row["old_over_old"]
        print(
            f"{row['case']:18} {row['row']:28} {row['column']:10} {row['new_over_old']:8.3f}   {low:.3f} to {high:.3f}"
        )


if __name__ == "__main__":
    main()

"""Compare `forebay bench` of two checkouts, alternating in one run.

    python benchmarks/compare_checkouts.py OLD NEW --case rows-1024 --rounds 5 [--device cuda] [--save FILE]

Each round measures OLD, NEW and OLD again. The table shows the median ratio NEW / OLD of every row of Forebay. It
also shows the range of OLD / OLD, which is the noise of the machine. A ratio above 1 means that NEW is faster, for
every unit.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

Figures = dict[tuple[str, str, str], float]


def measure(checkout: Path, arguments: argparse.Namespace) -> Figures:
    """Run the benchmark in a checkout. Return the figures of Forebay's contenders; larger is better."""
    command = [sys.executable, "-m", "forebay", "bench", "--json", "--repeats", "1", "--device", arguments.device]
    command += [part for case in arguments.case for part in ("--case", case)]
    command += [part for name in arguments.contender for part in ("--contender", name)]
    command += ["--quick"] if arguments.quick else []
    paths = [str((checkout / "src").resolve()), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, env=environment, cwd=checkout, stdout=subprocess.PIPE, text=True, check=True)
    return dict(figures_of(json.loads(done.stdout)))


def figures_of(document: dict) -> list[tuple[tuple[str, str, str], float]]:
    found = []
    for case in document["cases"]:
        units = {column["name"]: column["unit"] for column in case["case"]["columns"]}
        for row in case["rows"]:
            if row["status"] != "measured" or "forebay" not in row["label"]:
                continue
            for column, cell in row["columns"].items():
                if cell["median"]:
                    value = cell["median"] if units[column].endswith("/s") else 1 / cell["median"]
                    found.append(((case["case"]["name"], row["label"], column), value))
    return found


def compare(rounds: list[tuple[Figures, Figures, Figures]]) -> list[dict]:
    rows = []
    for key in sorted({key for old, new, again in rounds for key in old.keys() & new.keys() & again.keys()}):
        complete = [
            (old[key], new[key], again[key]) for old, new, again in rounds if key in old and key in new and key in again
        ]
        ratios = [new / ((old + again) / 2) for old, new, again in complete]
        noise = sorted(again / old for old, new, again in complete)
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
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--case", action="append", default=[], help="measure only this case; repeatable")
    parser.add_argument("--contender", action="append", default=[], help="measure only this contender; repeatable")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--save", type=Path)
    arguments = parser.parse_args()
    rounds = []
    for _ in range(arguments.rounds):
        old, new, again = (measure(path, arguments) for path in (arguments.old, arguments.new, arguments.old))
        rounds.append((old, new, again))
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

"""Make the fixtures of tests/compat/v0_1: files that version 0.1 writes and later versions must read.

Run this file with version 0.1 only, from the root of the repository:

    PYTHONPATH=PATH_TO_0.1/src python -m tests.compat.make_fixtures --at /srv/train

PATH_TO_0.1 is a checkout of version 0.1, with its tests. Version 0.1 writes the absolute paths of watched scripts and
of the folder for temporary files, so the scripts run in the folder `--at`. Choose a path that says nothing about your
machine. The command makes the folder; an existing folder must be empty. `--only NAME` makes one part again. All parts
take about two minutes.

Files:

    states.json              states of feeds, and the rows that 0.1 returned after each state
    states_keras.json        the same for feed("keras"), taken inside fit
    states_ray.json          the same for a Ray Dataset
    capture_*.gz, .json      captures of the doctor, and the JSON document of each
    bench*.json, .txt        results of `forebay bench --save`, and the output of `--show`
    probe/probe-*.json       the cache of `forebay probe`
    cache_*.zip              the folders that `cache=` filled, with blocks and with whole objects
    scenario.toml, scale.json  a scenario, and the result of `forebay scale`
    surface.json             names, signatures, errors, commands, flags and options
"""

import argparse
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.compat import surface
from tests.compat.commands import forebay, python
from tests.compat.framework_states import MODES
from tests.compat.pipelines import CASES, advance, rest_and_next
from tests.compat.scripts import SCALE_RUNS, SCENARIO, SCRIPTS
from tests.compat.store import CACHES, FixedStore, pack

import forebay as fb

VERSION = "0.1.0"
FIXTURES = Path(__file__).parent / "v0_1"
CHECKOUT = Path(fb.__file__).parents[2]  # checkout of 0.1
# A capture from a GPU. Version 0.1 reads this file and writes it again. The file contains no path of a machine.
GPU_CAPTURE = CHECKOUT / "tests" / "doctor" / "recorded" / "cupy" / "host_check_spectrum.gz"
GPU_RESULTS = CHECKOUT / "benchmarks" / "results" / "h200.json"
FORBIDDEN = ("/tmp", "/work", "/home", "/root")  # no fixture may contain these paths


def make_states(_: Path) -> None:
    """Record the rows after each state, and check that a second feed resumes exactly."""
    made: dict[str, Any] = {}
    for name, case in CASES.items():
        with case.make(_make_temporary_folder()).feed("numpy") as feed:
            rest = advance(feed, case)
            state = json.loads(json.dumps(feed.state_dict()))
            expected = rest_and_next(rest, feed, case.limit)
        with (case.resumed or case.make)(_make_temporary_folder()).feed("numpy") as feed:
            feed.load_state_dict(state)
            resumed = rest_and_next(feed, feed, case.limit)
        assert case.resumed or resumed == expected, name
        made[name] = {"state": state, **resumed}
    assert "stream" in made["generator_with_own_state"]["state"]
    _write_json("states.json", made)


def make_framework_states(_: Path) -> None:
    for name in MODES:
        done = python("-m", "tests.compat.framework_states", name, KERAS_BACKEND="jax")
        assert done.returncode == 0, done.stderr
        _write_json(f"states_{name}.json", json.loads(done.stdout.splitlines()[-1]))


def make_captures(at: Path) -> None:
    for name, script in SCRIPTS.items():
        (at / f"train_{name}.py").write_text(script)
    steps = ("--steps", "12", "--warm-up", "5")
    for name in SCRIPTS:
        _capture(at, f"capture_{name}", *steps, script=f"train_{name}.py")
    for rank in ("0", "1"):
        _capture(at, "capture_torch", *steps, script="train_torch.py", RANK=rank, WORLD_SIZE="2")
    _capture(at, "capture_gpu", script=str(GPU_CAPTURE))
    ranks = sorted(FIXTURES.glob("capture_torch.rank*.gz"))
    _run("doctor", "--json", FIXTURES / "capture_ranks.json", *ranks, cwd=at)


def _capture(at: Path, name: str, *options: str, script: str, **settings: str) -> None:
    _run("doctor", *options, "--capture", f"{name}.gz", "--json", f"{name}.json", script, cwd=at, **settings)
    for file in at.glob(f"{name}*"):
        shutil.move(file, FIXTURES / file.name)


def make_bench(at: Path) -> None:
    chosen = ("--case", "rows-1024", "--case", "handoff", "--contender", "forebay", "--contender", "torch_call")
    _run("bench", "--quick", "--repeats", "2", *chosen, "--save", FIXTURES / "bench.json", cwd=at, TMPDIR=str(at))
    _run("bench", "--show", GPU_RESULTS, "--save", FIXTURES / "bench_gpu.json", cwd=at)
    for name in ("bench", "bench_gpu"):
        (FIXTURES / f"{name}.txt").write_text(_run("bench", "--show", FIXTURES / f"{name}.json", cwd=at))


def make_probe(at: Path) -> None:
    """Write a measured probe, and a probe of a GPU with invented figures."""
    cache = at / "cache"
    _run("probe", cwd=at, XDG_CACHE_HOME=str(cache), TMPDIR=str(at))
    os.environ["XDG_CACHE_HOME"] = str(cache)
    _save_probe_of_a_gpu()
    for file in (cache / "forebay").iterdir():
        shutil.move(file, _make_folder(FIXTURES / "probe") / file.name)


def _save_probe_of_a_gpu() -> None:
    """Use the classes of 0.1, which write the file of a GPU machine."""
    from dataclasses import replace

    from forebay.probe import Probe
    from forebay.probing.figures import DeviceCeilings, RowSpeed, RowSpeeds

    speeds = RowSpeeds((RowSpeed(64, 1e9), RowSpeed(400, 4e9), RowSpeed(4096, 9e9)))
    device = DeviceCeilings(
        "GPU", 70 << 30, 80 << 30, 5, 16, 5e10, 4.5e10, 9e10, 8e9, 1e10, 1e10, 5e-6, 1e-5, 4e-6, 7e-6, speeds, None
    )
    measured = Probe.cached()
    assert measured is not None
    hardware = replace(measured.hardware, gpus=("GPU",), driver_version="580.1")
    replace(measured, hardware=hardware, device=device, missing=()).save()


def make_caches(_: Path) -> None:
    for name, make in CACHES.items():
        cached, folder = make(), _make_temporary_folder()
        FixedStore.hold(cached.objects)
        with cached.pipeline(folder).feed("numpy") as feed:
            for _batch in feed:
                pass
        pack(folder, FIXTURES / f"cache_{name}.zip")


def make_scale(at: Path) -> None:
    (FIXTURES / "scenario.toml").write_text(SCENARIO)
    _write_json(
        "scale.json",
        {
            name: json.loads(_run("scale", *arguments, "--json", cwd=FIXTURES, XDG_CACHE_HOME=str(at)))
            for name, arguments in SCALE_RUNS.items()
        },
    )


def make_surface(_: Path) -> None:
    frameworks = python("-m", "tests.compat.surface", KERAS_BACKEND="jax")
    assert frameworks.returncode == 0, frameworks.stderr
    commands = surface.commands_of(surface.help_pages([[]])[""])
    pages = surface.help_pages([[], *([command] for command in commands)])
    _write_json(
        "surface.json",
        {
            "light": surface.light_surface(),
            "frameworks": json.loads(frameworks.stdout.splitlines()[-1]),
            "commands": {command: surface.parse_help(page) for command, page in pages.items()},
            "formats": {suffix: _options(surface.format_options(suffix)) for suffix in surface.SUFFIXES},
            "targets": surface.TARGETS,
            "entry_points": surface.entry_points(),
        },
        nested=True,
    )


def _options(text: str) -> list[str]:
    return re.findall(r"\w+", text.partition("their options are")[2])


PARTS: dict[str, Callable[[Path], None]] = {
    "states": make_states,
    "framework_states": make_framework_states,
    "captures": make_captures,
    "bench": make_bench,
    "probe": make_probe,
    "caches": make_caches,
    "scale": make_scale,
    "surface": make_surface,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--at", type=Path, required=True, help="the folder in which 0.1 runs; fixtures contain its path"
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; may be repeated")
    arguments = parser.parse_args()
    if fb.__version__ != VERSION:
        raise SystemExit(f"this is Forebay {fb.__version__}. Put the src folder of {VERSION} into PYTHONPATH.")
    at = _make_folder(arguments.at)
    if any(at.iterdir()):
        raise SystemExit(f"{at} is not empty. Pass a new folder.")
    _make_folder(FIXTURES)
    for name in arguments.only or PARTS:
        PARTS[name](at)
    shutil.rmtree(at)
    _check_paths()


def _check_paths() -> None:
    import gzip

    for file in sorted(FIXTURES.rglob("*")):
        if file.is_file() and file.suffix != ".zip":
            data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
            found = [name for name in FORBIDDEN if name.encode() in data]
            assert not found, f"{file} names {found}"


def _run(*arguments: str | Path, cwd: Path, **settings: str) -> str:
    done = forebay(*arguments, cwd=cwd, **settings)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def _write_json(name: str, document: dict[str, Any], *, nested: bool = False) -> None:
    """Write each part on its own line, so that diffs show where a change is."""
    lines = [f" {json.dumps(key)}: {_part(part) if nested else json.dumps(part)}" for key, part in document.items()]
    (FIXTURES / name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _part(part: Any) -> str:
    return json.dumps(part, indent=2) if isinstance(part, dict) and "flags" in part else json.dumps(part)


def _make_temporary_folder() -> Path:
    return Path(tempfile.mkdtemp())


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    main()

"""Framework processes: each framework is imported once, in a process that runs all of its cases.

Frameworks conflict in one process, and importing one takes seconds. So the cases of a framework are in files named
`*cases.py`, and one pytest process per framework runs them. The first test that needs a process starts it:

    def test_every_framework_passes_the_same_cases(framework_processes, framework):
        framework_processes.check_cases(framework, CASES)

`scripts NAME` profiles all scripts of `tests/doctor/scripts/NAME` and keeps their captures. `cured NAME` then applies
the cures of the doctor to these scripts and runs the results.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from tests.support.paths import DOCTOR, ROOT, TESTS

from forebay.doctor.model.capture import Capture

__all__ = ["CASES", "SETTINGS", "TRAINERS", "Captures", "FrameworkProcesses"]

MAX_SECONDS = 900  # timeout of a process
# OMP_NUM_THREADS: on a busy machine, threads that wait for each other would make a step arbitrarily long.
SETTINGS = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
# The functions of the cases and scripts are small: compiling them takes longer than running them.
_FAST_COMPILATION = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
SETTINGS |= {"XLA_FLAGS": f"--xla_force_host_platform_device_count=2 {_FAST_COMPILATION}"}
SETTINGS |= {"KERAS_BACKEND": "tensorflow"}

_HOOKS, _HANDOFF, _KERAS_FEED = "doctor/capture/hooks", "adapters/handoff", "adapters/keras"
_REGISTRY, _TRAINERS = "core/registry_cases.py", "adapters/trainers"
TRAINERS = ("lightning", "transformers", "accelerate", "ignite", "fastai", "ray_train")  # trainers for PyTorch
_EVERY_FRAMEWORK = (
    f"{_HANDOFF}/cases.py",
    f"{_HANDOFF}/pixel_cases.py",
    f"{_HANDOFF}/copy_cases.py",
    "adapters/upload/upload_cases.py",
    "adapters/readback/readback_cases.py",
    "measure/bench/device_cases.py",
    _REGISTRY,
)
_KERAS = (
    f"{_HOOKS}/keras_cases.py",
    "doctor/keras_callback_cases.py",
    *(f"{_KERAS_FEED}/{part}_cases.py" for part in ("result", "field", "fit_argument", "epoch", "state", "lifetime")),
    "measure/bench/keras_fit_cases.py",
)
_KERAS_BACKUPS = f"{_KERAS_FEED}/backup_cases.py"
# The doctor's files come first: some of them look at a framework before Keras has added its dtypes to NumPy.
CASES = {
    "torch": (
        *(f"{_HOOKS}/torch_{part}_cases.py" for part in ("tensor", "data", "optimizer", "untouched", "settings")),
        "doctor/capture/torch_arithmetic_cases.py",
        "adapters/loader/loader_cases.py",
        "adapters/loader/loader_epoch_cases.py",
        *(f"doctor/emulate/torch_{part}_cases.py" for part in ("transfer", "batch", "setting")),
        *_EVERY_FRAMEWORK,
    ),
    "torch compiler": (f"{_HOOKS}/torch_compile_cases.py",),
    "jax": (
        *(f"{_HOOKS}/{part}_cases.py" for part in ("jax", "jax_usage", "jax_settings")),
        "doctor/capture/jax_arithmetic_cases.py",
        "doctor/emulate/jax_cases.py",
        f"{_HANDOFF}/jax_cases.py",
        f"{_HANDOFF}/jax_sharding_cases.py",
        f"{_HANDOFF}/jax_tracing_cases.py",
        *_EVERY_FRAMEWORK,
    ),
    "tensorflow": (
        *(f"{_HOOKS}/tensorflow_{part}_cases.py" for part in ("untouched", "tensor", "function", "data", "settings")),
        "doctor/capture/tensorflow_arithmetic_cases.py",
        "doctor/emulate/tensorflow_cases.py",
        f"{_HANDOFF}/function_cases.py",
        "adapters/monitoring_cases.py",
        *_EVERY_FRAMEWORK,
    ),
    "cupy": (f"{_HOOKS}/cupy_cases.py", "doctor/emulate/cupy_cases.py"),  # a stand-in for CuPy
    "keras on tensorflow": (*_KERAS, f"{_KERAS_FEED}/tensorflow_cases.py", f"{_HANDOFF}/strategy_cases.py"),
    "keras on jax": (*_KERAS, f"{_KERAS_FEED}/jax_cases.py", _REGISTRY),
    "keras on torch": _KERAS,
    **{trainer: (f"{_TRAINERS}/{trainer}_cases.py",) for trainer in TRAINERS},
    # Each of these processes takes a minute, because the cases fit dozens of models and start a process.
    **{f"keras backups on {backend}": (_KERAS_BACKUPS,) for backend in ("tensorflow", "jax", "torch")},
    "orbax": ("adapters/trainers/orbax_cases.py",),
}


class FrameworkProcesses:
    """Runs processes by name and keeps their results: `cases torch`, `cases keras on jax`, `scripts torch`.

    Test workers that share the folder share the results, so one of them runs each process. A worker waits while its
    process runs: more processes than cores would disturb each other, and a disturbed script is profiled again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with _hold_lock(folder / "lock"):
            if not (stand_in := folder / "site-packages").exists():
                stand_in.symlink_to(DOCTOR / "stand_in")  # the doctor treats code in site-packages as library code
        self.capture = cache(self._load_capture)

    def check_cases(self, framework: str, file: str | Path) -> None:
        """Fail if a case of this file failed. Run the framework's process first, unless it has run already."""
        name = f"cases {framework}"
        self._run_once(name)
        results = self._folder / f"{name}.xml"
        assert results.exists(), self._output(name)
        path = Path(file).relative_to(ROOT).as_posix() if Path(file).is_absolute() else f"tests/{file}"
        found = [case for case in ET.parse(results).iter("testcase") if case.get("file") == path]
        assert found, f"{name} ran no case of {path}:\n{self._output(name)}"
        failures = [part.text or "" for case in found for part in case if part.tag in ("failure", "error")]
        assert not failures, "\n\n".join(failures)[-8000:]

    def script_result(self, framework: str, script: str, kind: str) -> Path:
        """Return a file of the profiled run of a script: its capture or its answers."""
        name = f"scripts {framework}"
        self._run_once(name)
        path = self._folder / framework / f"{script}.{kind}"
        assert path.exists(), self._output(name)
        return path

    def cured_scripts(self, framework: str) -> dict[str, str]:
        """Return how each cured script of a framework ended, by script, rule and cure."""
        self._run_once(f"scripts {framework}")
        self._run_once(f"cured {framework}")
        path = self._folder / framework / "cured.json"
        assert path.exists(), self._output(f"cured {framework}")
        ended: dict[str, str] = json.loads(path.read_text())
        return ended

    def _load_capture(self, framework: str, script: str) -> Capture:
        return Capture.load(self.script_result(framework, script, "capture"))

    def _output(self, name: str) -> str:
        return (self._folder / f"{name}.output").read_text()[-8000:]

    def _run_once(self, name: str) -> None:
        output = self._folder / f"{name}.output"
        with _hold_lock(self._folder / f"{name}.lock"):
            if not output.exists():
                text = self._run(name)
                output.write_text(text)

    def _run(self, name: str) -> str:
        kind, _, framework = name.partition(" ")
        done = subprocess.run(
            [sys.executable, "-m", *self._command(kind, framework)],
            env=os.environ | self._environment(framework),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAX_SECONDS,
            check=False,
        )
        return f"{done.stdout}\n{name} ended with status {done.returncode}"

    def _command(self, kind: str, framework: str) -> list[Any]:
        if kind == "cured":
            return ["tests.doctor.run_cured", framework, str(self._folder / framework)]
        return self._scripts(framework) if kind == "scripts" else self._cases(framework)

    def _environment(self, framework: str) -> dict[str, str]:
        settings = SETTINGS | {"FOREBAY_FRAMEWORK": framework}
        if framework == "cupy":
            paths = [str(self._folder / "site-packages"), *filter(None, [os.environ.get("PYTHONPATH")])]
            return settings | {"PYTHONPATH": os.pathsep.join(paths)}
        _, on, backend = framework.partition(" on ")
        if not on:
            return settings
        if _has_correct_compilation_cache():  # most cases compile the same small model, which JAX then compiles once
            cache_folder = str(self._folder / "jax_cache")
            settings |= {"JAX_COMPILATION_CACHE_DIR": cache_folder, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        return settings | {"KERAS_BACKEND": backend}

    def _scripts(self, framework: str) -> list[str]:
        results = self._folder / framework
        shutil.rmtree(results, ignore_errors=True)  # left by a test worker that was stopped
        results.mkdir()
        return ["tests.doctor.watch_scripts", framework, str(results)]

    def _cases(self, framework: str) -> list[Any]:
        results = ["-o", "junit_family=xunit1", "--junitxml", str(self._folder / f"cases {framework}.xml")]
        files = [str(TESTS / file) for file in CASES[framework]]
        return ["pytest", "-q", "-p", "no:cacheprovider", *results, *files]


class Captures:
    """The captures of one framework's scripts, by script."""

    def __init__(self, processes: FrameworkProcesses, framework: str) -> None:
        self._processes, self._framework = processes, framework

    def __getitem__(self, script: str) -> Capture:
        return self._processes.capture(self._framework, script)


def _has_correct_compilation_cache() -> bool:
    """Return whether executables from JAX's compilation cache compute the same as newly compiled ones.

    With JAX 0.4.38 and this cache, every second run of the Keras cases computed wrong weights.
    Without the cache, all of six runs computed the right weights.
    """
    return tuple(map(int, version("jax").split(".")[:2])) >= (0, 6)


@contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    """Hold a lock that the operating system releases when the process ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

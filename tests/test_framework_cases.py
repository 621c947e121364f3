"""The cases of every framework, in one process per framework (see `support/framework_processes.py`)."""

import pytest
from tests.support.framework_processes import CASES, TRAINERS
from tests.support.paths import TESTS

# "keras on jax" and "keras on torch" repeat the cases of "keras on tensorflow". The other names are cases that take
# long: the compiler and the trainers of PyTorch, fits with backups, and checkpoints of Orbax.
LONG = ("torch compiler", "keras on jax", "keras on torch", "keras backups", "orbax", *TRAINERS)


@pytest.mark.parametrize(
    ("framework", "file"),
    [
        pytest.param(framework, file, marks=[pytest.mark.long] * framework.startswith(LONG))
        for framework, files in CASES.items()
        for file in files
    ],
)
def test_every_case_passes(framework_processes, framework, file):
    framework_processes.check_cases(framework, file)


def test_every_file_of_cases_belongs_to_a_framework():
    found = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("*cases.py")}
    listed = {file for files in CASES.values() for file in files}
    elsewhere = {file for file in found if file.startswith("gpu/") or "test_" in file} | {"measure/simulate/cases.py"}
    assert found - elsewhere == listed

"""Keras's hooks on every backend, each in a process of its own: what they write, and that they change nothing."""

import pytest
from tests.doctor.processes import WAITING

PROCESSES = tuple(f"cases keras on {backend}" for backend in ("tensorflow", "jax", "torch"))
pytestmark = WAITING


@pytest.mark.parametrize("process", PROCESSES)
def test_all_cases_hold(processes, process):
    processes.wait(process)

"""Keras's hooks on every backend, each in a process of its own: what they write, and that they change nothing."""

import pytest

PROCESSES = tuple(f"cases keras on {backend}" for backend in ("tensorflow", "jax", "torch"))
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("process", PROCESSES)
def test_all_cases_hold(processes, process):
    processes.wait(process)

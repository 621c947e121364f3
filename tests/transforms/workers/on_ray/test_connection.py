"""Connecting to a cluster. Each test runs its own process, because a process can join only one Ray cluster."""

import os
import signal
import subprocess
import sys

import pytest
from tests.support.run_python import run_python
from tests.transforms.workers.on_ray.conftest import wait_until_no_workers

FEED = """
import numpy as np, forebay as fb
from tests.transforms.workers.on_ray.maps import delay
feed = fb.from_arrays({"number": np.arange(1000)}).batch(10).map(delay, where="ray", workers=1).feed()
"""


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "no-such-host.invalid:6379"])
def test_an_unreachable_address_is_reported_before_ray_waits_for_it(address):
    done = run_python("-c", FEED, RAY_ADDRESS=address)  # without the check, Ray would wait and raise another error
    assert f"ClusterError: no Ray cluster answers at RAY_ADDRESS={address}" in done.stderr


def test_without_ray_the_error_names_the_package_to_install():
    done = run_python("-c", "import sys; sys.modules['ray'] = None" + FEED)
    assert "FrameworkError: map(..., where='ray') needs Ray" in done.stderr
    assert "pip install 'forebay[ray]'" in done.stderr


def test_the_cluster_that_ray_address_names_is_used(cluster):
    done = run_python(
        "-c",
        FEED + "print(sum(len(batch['number']) for batch in feed), feed.stats()['ray']['workers'])",
        RAY_ADDRESS=cluster.address,
    )
    assert done.stdout.split() == ["1000", "1"], done.stderr


def test_ctrl_c_ends_every_worker(cluster):
    script = FEED.replace(".feed()", ".repeat().feed()") + "for batch in feed: print(len(batch['number']), flush=True)"
    program = subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | {"RAY_ADDRESS": cluster.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    program.stdout.readline()
    program.send_signal(signal.SIGINT)
    _, stderr = program.communicate(timeout=300)
    assert "KeyboardInterrupt" in stderr
    assert wait_until_no_workers() == []

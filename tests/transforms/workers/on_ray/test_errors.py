"""Errors of functions, of the cluster and of its nodes name the worker, the rows or the remedy."""

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.transforms.workers.on_ray.conftest import (
    copy_batches,
    wait_for_workers,
    wait_until_no_cpu_is_free,
    workers_with_path,
)
from tests.transforms.workers.on_ray.maps import RefusedError, narrow, refuse_300, rows

import forebay as fb
from forebay.errors import ClusterError, PipelineError


def failing_pipeline(where="ray"):
    return fb.from_arrays(rows()).map(refuse_300, where=where).batch(30)


@pytest.mark.usefixtures("cluster")
def test_an_error_keeps_its_type_and_names_the_worker_and_the_rows():
    ours = []
    with failing_pipeline().feed() as on_ray, pytest.raises(RefusedError, match="300") as caught:
        ours += [batch["number"][0] for batch in on_ray]
    notes = "\n".join(caught.value.__notes__)
    assert "Ray worker (pid" in notes
    assert "in refuse_300" in notes
    assert "while filling rows 300" in notes
    assert on_ray.stats()["ray"]["retried_tasks"] == 0


@pytest.mark.usefixtures("cluster")
def test_batches_before_an_error_are_delivered():
    with failing_pipeline().feed() as on_ray:
        batches = iter(on_ray)
        assert [next(batches)["number"][0] for _ in range(10)] == list(range(0, 300, 30))
        with pytest.raises(RefusedError):
            next(batches)


@pytest.mark.usefixtures("cluster")
def test_a_function_that_cannot_be_sent_is_refused():
    lock = threading.Lock()
    pipeline = fb.from_arrays(rows()).batch(30).map(lambda batch: batch if lock else None, where="ray")
    with pytest.raises(PipelineError, match=r"cannot be sent to Ray workers.*where=\"thread\""):
        pipeline.feed()


@pytest.mark.usefixtures("cluster")
def test_processes_and_ray_in_one_pipeline_are_refused():
    pipeline = fb.from_arrays(rows()).map(refuse_300, where="process").batch(30).map(narrow, where="ray")
    with pytest.raises(PipelineError, match="Set where='ray' for both maps"):
        pipeline.feed()


@pytest.mark.usefixtures("cluster")
def test_a_cluster_without_a_free_cpu_fails_after_the_timeout(monkeypatch):
    pipeline = fb.from_arrays(rows()).batch(30)
    with pipeline.map(narrow, where="ray", workers=2).feed() as first:
        wait_for_workers(first, 2)
        wait_until_no_cpu_is_free()
        second = pipeline.map(narrow, where="ray").feed()
        monkeypatch.setattr("forebay.transforms.workers.ray_pool.START_SECONDS", 1.0)
        monkeypatch.setattr("forebay.transforms.workers.ray_pool.POLL_SECONDS", 0.5)
        with pytest.raises(ClusterError, match=r"0 of the cluster's 2 CPUs are free.*workers=n"):
            next(iter(second))
        second.close()


@pytest.mark.usefixtures("cluster")
def test_a_node_with_another_version_is_reported_with_both_versions(tmp_path):
    other = tmp_path / "forebay"
    shutil.copytree(Path(fb.__file__).parent, other, ignore=shutil.ignore_patterns("__pycache__"))
    text = (other / "__init__.py").read_text()
    (other / "__init__.py").write_text(text.replace(f'"{fb.__version__}"', '"0.0.1"'))
    pipeline = fb.from_arrays(rows()).batch(30).map(narrow, where="ray", workers=1)
    with (
        workers_with_path(tmp_path),
        pipeline.feed() as on_ray,
        pytest.raises(ClusterError, match=rf"forebay 0\.0\.1, but the trainer .*forebay {fb.__version__}"),
    ):
        copy_batches(on_ray)


@pytest.mark.usefixtures("cluster")
def test_a_node_without_forebay_is_reported_with_a_remedy(tmp_path):
    (tmp_path / "forebay.py").write_text("raise ModuleNotFoundError('No module named forebay')")
    pipeline = fb.from_arrays(rows()).batch(30).map(narrow, where="ray", workers=1)
    with (
        workers_with_path(tmp_path),
        pipeline.feed() as on_ray,
        pytest.raises(ClusterError, match=r"(?s)could not start.*No module named forebay.*runtime_env"),
    ):
        copy_batches(on_ray)


@pytest.mark.parametrize("workers", [0, -1, 1.5, "all"])
def test_an_invalid_number_of_workers_is_refused(workers):
    with pytest.raises(PipelineError, match="workers="):
        fb.from_arrays(np.arange(4)).map(narrow, where="ray", workers=workers)


def test_a_number_of_workers_for_threads_is_refused():
    with pytest.raises(PipelineError, match="has no workers, but got workers="):
        fb.from_arrays(np.arange(4)).map(narrow, workers=2)

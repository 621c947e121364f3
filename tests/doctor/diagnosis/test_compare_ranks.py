"""Comparison of ranks: slow ranks, ranks that differ, and the rank number of a process."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.resources import files
from types import SimpleNamespace

import jsonschema
import pytest
from tests.doctor.captures import TENSORFLOW_GPU, TORCH, TORCH_GPU, download, loop, move, same, upload
from tests.doctor.device_rig import run
from tests.support.paths import DOCTOR, ROOT

from forebay.core import launchers
from forebay.core.launchers import detect_process_rank
from forebay.doctor.diagnosis.compare_ranks import compare_ranks
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.capture import Capture
from forebay.doctor.report.document import to_document
from forebay.doctor.report.terminal_compare import render_ranks

SCHEMA = json.loads(files("forebay.doctor.report").joinpath("schema.json").read_text())
pytestmark = pytest.mark.timeout(600)  # seconds; two processes import a framework


def ranks_of(*captures, numbered=True):
    numbers = range(len(captures)) if numbered else [None] * len(captures)
    diagnoses = [diagnose(replace(capture, rank=number)) for capture, number in zip(captures, numbers, strict=True)]
    return compare_ranks(diagnoses)


def synchronized_rank(us):
    """Return the capture of a rank that computes for `us` microseconds and waits in a collective until 1 ms is over."""

    def program(rig):
        rig.launch(us)
        rig.launch(1_000 - us)
        rig.read(line=3)

    capture = run(program)
    records = capture.device.records.copy()
    kernels = records[records["kind"] == 10]
    records["name"][records["kind"] == 10] = [1 + number % 2 for number in range(len(kernels))]
    device = replace(capture.device, records=records, names=("", "gemm", "ncclDevKernel_AllReduce_Sum"))
    return replace(capture, device=device)


# Comparison


def test_equal_ranks_have_no_remark():
    ranks = ranks_of(loop(download(ms=3)), loop(download(ms=3.1)), loop(download(ms=3)))
    assert ranks.remarks == ()
    assert [rank.number for rank in ranks.ranks] == [0, 1, 2]


def test_a_slow_rank_is_named_with_its_excess():
    ranks = ranks_of(loop(ms=10), loop(ms=15), loop(ms=10))
    assert ranks.slowest.number == 1
    assert ranks.remarks[0] == "rank 1 is much slower than the others: 15.0 ms per step, 50% more than their median"


def test_the_rank_that_waits_least_is_the_slowest():
    """Collectives make all steps equally long; the slowest rank spends the least time in them."""
    ranks = ranks_of(synchronized_rank(200), synchronized_rank(900), synchronized_rank(200))
    steps = [rank.step_seconds for rank in ranks.ranks]
    assert max(steps) == pytest.approx(min(steps), rel=0.01)
    assert ranks.slowest.number == 1
    assert ranks.remarks[0].startswith("rank 1 is much slower than the others: ")
    assert "per step without collectives" in ranks.remarks[0]


def test_a_rank_with_its_data_on_another_device_is_named():
    there, here = upload(line=3, ms=0.1, device="cuda:0"), upload(line=3, ms=0.1, device="cpu")
    ranks = ranks_of(loop(there), loop(upload(line=3, ms=0.1, device="cuda:1")), loop(here))
    remark = "rank 2 has the data of torch.tensor (train.py:3) on the host; other ranks have it on cuda"
    assert ranks.remarks == (remark,)


def test_a_rank_with_additional_moves_is_named():
    plain, moving = loop(frameworks=TENSORFLOW_GPU), loop(move(ms=0.01, line=4), frameworks=TENSORFLOW_GPU)
    (remark,) = ranks_of(plain, plain, moving).remarks
    assert remark == "rank 2 moves the data of NonZero to the host (train.py:4), unlike other ranks"


def test_a_rank_that_sees_no_gpu_is_named():
    ranks = ranks_of(loop(frameworks=TORCH_GPU), loop(frameworks=TORCH_GPU), loop(frameworks=TORCH))
    assert ranks.remarks == ("rank 2 sees no GPU, unlike other ranks",)


def test_a_rank_that_runs_fewer_kernels_is_named():
    def kernels(count):
        return run(lambda rig: [rig.launch(10) for _ in range(count)] + [rig.read(line=3)])

    (remark,) = [remark for remark in ranks_of(kernels(20), kernels(20), kernels(8)).remarks if "kernels" in remark]
    assert remark == (
        "rank 2 runs 8 kernels per step; the median of the others is 20, so some of its operations probably do not "
        "run on its GPU"
    )


def test_a_rank_with_another_main_finding_is_named():
    ranks = ranks_of(loop(download(ms=3)), loop(download(ms=3)), loop(upload(ms=3, key=same)))
    assert ranks.remarks[-1].startswith("rank 2 has another main finding: torch.tensor uploads the same 1.0 MiB")


def test_logging_on_the_first_rank_only_is_not_reported():
    assert ranks_of(loop(download(ms=0.1, line=3)), loop(), loop()).remarks == ()


def test_captures_without_rank_numbers_are_numbered_in_order():
    assert [rank.number for rank in ranks_of(loop(), loop(), numbered=False).ranks] == [0, 1]


# Reports


def test_the_table_of_ranks_fits_and_states_how_many_ranks_it_omits():
    ranks = ranks_of(*[loop(download(ms=3))] * 20)
    lines = render_ranks(ranks).plain.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "20 ranks. Rank 0 is the slowest."
    assert "     0    10.0 ms        0 s           -  read_back" in lines
    assert "  4 more ranks. Use --json FILE to see all." in lines


def test_the_json_document_of_ranks_fits_the_schema():
    ranks = ranks_of(loop(ms=10), loop(download(ms=3), ms=15))
    document = json.loads(json.dumps(to_document(ranks.slowest.diagnosis, ranks), allow_nan=False))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert document["ranks"]["slowest"] == document["rank"] == 1
    assert [each["rule"] for each in document["ranks"]["each"]] == [None, "read_back"]


# The rank of this process


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        ({"RANK": "3", "WORLD_SIZE": "8"}, 3),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"LOCAL_RANK": "1"}, 1),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, 2),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, 5),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_JOB_NAME": "interactive"}, 5),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_NAME": "bash", "SLURM_PTY_PORT": "4001"}, None),
        ({"PMIX_RANK": "3"}, 3),
        ({"RANK": "3", "WORLD_SIZE": "2"}, None),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, None),
        ({"RANK": "first"}, None),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a", "b"]}, "task": {"type": "worker", "index": 1}}'}, 1),
        (
            {"TF_CONFIG": '{"cluster": {"chief": ["a"], "worker": ["b"]}, "task": {"type": "worker", "index": 0}}'},
            1,
        ),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}}'}, None),
        ({"TF_CONFIG": "not json"}, None),
    ],
)
def test_the_launcher_gives_the_rank(monkeypatch, environment, rank):
    monkeypatch.setattr(launchers.os, "environ", environment)
    monkeypatch.delitem(sys.modules, "jax._src.distributed", raising=False)
    assert detect_process_rank() == rank


def test_jax_gives_the_rank_once_it_is_initialized(monkeypatch):
    monkeypatch.setattr(launchers.os, "environ", {})
    state = SimpleNamespace(client=object(), num_processes=2, process_id=1)
    monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace(global_state=state))
    assert detect_process_rank() == 1


# A run of two ranks


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "forebay", "doctor", "--capture", "run.gz", DOCTOR / "ranks" / "two_ranks.py"]
    settings = {"WORLD_SIZE": "2", "INIT_METHOD": f"file://{folder}/store", "CUDA_VISIBLE_DEVICES": ""}
    settings |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    running = [
        subprocess.Popen(command, cwd=folder, env=os.environ | settings | {"RANK": rank}, stdout=subprocess.DEVNULL)
        for rank in "01"
    ]
    assert [process.wait(500) for process in running] == [0, 0]
    return folder


@pytest.mark.long
def test_each_rank_writes_its_own_file(two_ranks):
    assert Capture.load(two_ranks / "run.rank0.gz").rank == 0
    assert Capture.load(two_ranks / "run.rank1.gz").rank == 1


@pytest.mark.long
def test_the_captures_of_all_ranks_are_read_together(two_ranks):
    command = [sys.executable, "-m", "forebay", "doctor", "--json", "all.json", "run.rank1.gz", "run.rank0.gz"]
    done = subprocess.run(command, cwd=two_ranks, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 ranks. Rank ")
    document = json.loads((two_ranks / "all.json").read_text())
    assert [each["rank"] for each in document["ranks"]["each"]] == [0, 1]
    assert document["rank"] == document["ranks"]["slowest"]

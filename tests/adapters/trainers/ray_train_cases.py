"""Loaders inside Ray Train, whose workers fail once and resume from the checkpoint of Ray."""

import json
import os
import tempfile
from pathlib import Path

import pytest
import ray
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_data_loader, prepare_model
from tests.adapters.trainers.training import Net, RunStoppedError, expected_rows, flatten, make_loader
from tests.support.paths import ROOT

pytestmark = pytest.mark.filterwarnings("ignore")
RANKS, EPOCHS_OF_RANK = 2, 2
RESUMED_STEP = 4  # of six steps: 70 rows in steps of two batches of 16 rows make three steps per epoch


@pytest.fixture(scope="module", autouse=True)
def cluster():
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    ray.init(
        "local",
        num_cpus=RANKS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    yield
    ray.shutdown()


def train_on_worker(config):
    """Train as the documentation of Ray Train does.

    A checkpoint also has the state of the loader. The first run of a worker fails after `RESUMED_STEP` steps.
    """
    rank, folder, checkpoint = (
        ray.train.get_context().get_world_rank(),
        Path(config["folder"]),
        ray.train.get_checkpoint(),
    )
    net, loader = Net(), make_loader()
    model = prepare_model(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if checkpoint is not None:
        with checkpoint.as_directory() as path:
            saved = torch.load(Path(path) / "state.pt")
        net.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
    for _ in range(loader.sampler.epoch, EPOCHS_OF_RANK):
        for batch in loader:
            optimizer.zero_grad()
            model(**batch)["loss"].backward()
            optimizer.step()
            if checkpoint is None and len(net.rows) == RESUMED_STEP:
                save(folder, rank, "first", net)
                report({"model": net.state_dict(), "loader": loader.state_dict()}, rank)
                raise RunStoppedError
    save(folder, rank, "second", net)
    wrapped = [batch["row"].tolist() for batch in prepare_data_loader(make_loader())]
    (folder / f"wrapped{rank}.json").write_text(json.dumps(wrapped))


def save(folder, rank, part, net):
    (folder / f"{part}{rank}.json").write_text(json.dumps([net.rows, net.losses]))


def report(state, rank):
    with tempfile.TemporaryDirectory() as folder:
        torch.save(state, Path(folder) / "state.pt")
        ray.train.report({}, checkpoint=Checkpoint.from_directory(folder) if rank == 0 else None)


@pytest.fixture(scope="module")
def folder(cluster, tmp_path_factory):
    """Train with two workers, and return the folder to which they wrote."""
    folder = tmp_path_factory.mktemp("train")
    TorchTrainer(
        train_on_worker,
        train_loop_config={"folder": str(folder)},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=RANKS),
        run_config=RunConfig(storage_path=str(folder / "run"), failure_config=FailureConfig(max_failures=1)),
    ).fit()
    return folder


def train_by_hand_on_ranks():
    """Return rows and losses of both ranks, trained in this process with averaged gradients."""
    net, results = Net(), [([], []) for _ in range(RANKS)]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loaders = [make_loader(shard=(rank, RANKS)) for rank in range(RANKS)]
    for _ in range(EPOCHS_OF_RANK):
        for batches in zip(*loaders, strict=True):
            optimizer.zero_grad()
            for (rows, losses), batch in zip(results, batches, strict=True):
                loss = net(**batch)["loss"]
                (loss / RANKS).backward()
                rows.append(batch["row"].tolist())
                losses.append(loss.item())
            optimizer.step()
    return results


def test_workers_divide_the_rows_once_and_resume_from_the_checkpoint_of_ray(folder):
    for rank, (rows, losses) in enumerate(train_by_hand_on_ranks()):
        first, second = (json.loads((folder / f"{part}{rank}.json").read_text()) for part in ("first", "second"))
        assert first == [rows[:RESUMED_STEP], losses[:RESUMED_STEP]]
        assert second == [rows[RESUMED_STEP:], losses[RESUMED_STEP:]]


def test_a_loader_that_ray_wraps_is_not_divided_again(folder):
    halves = [json.loads((folder / f"wrapped{rank}.json").read_text()) for rank in range(RANKS)]
    assert sorted(flatten(flatten(halves))) == sorted(flatten(expected_rows(1)))

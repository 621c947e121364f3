"""Loaders inside PyTorch-Ignite."""

import pytest
import torch
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver
from tests.adapters.trainers.training import (
    EPOCHS,
    Net,
    RunStoppedError,
    expected_rows,
    make_loader,
    run_example,
    train_by_hand,
)

pytestmark = pytest.mark.filterwarnings("ignore")


def train(folder, *, stop=None, checkpoint=None):
    """Train with a checkpoint after each step. The loader is one more object to save."""
    model, loader = Net(), make_loader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(engine, batch):
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        optimizer.step()

    trainer = Engine(step)
    objects = {"trainer": trainer, "model": model, "optimizer": optimizer, "loader": loader}
    handler = Checkpoint(objects, DiskSaver(folder, require_empty=False), n_saved=None, global_step_transform=number_of)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, handler)

    @trainer.on(Events.ITERATION_COMPLETED)
    def interrupt(engine):
        if engine.state.iteration == stop:
            raise RunStoppedError

    if checkpoint is not None:
        Checkpoint.load_objects(objects, checkpoint=torch.load(checkpoint, weights_only=False))
    trainer.run(loader, max_epochs=EPOCHS)
    return model


def number_of(engine, event):
    return engine.state.iteration


def test_a_run_sees_the_epochs_of_the_feed(tmp_path):
    net, by_hand = train(tmp_path), train_by_hand()
    assert net.rows == expected_rows()
    assert net.losses == by_hand.losses
    assert net.weights == by_hand.weights


@pytest.mark.parametrize("step", [1, 4, 5, 6, 10, 13])
def test_a_run_resumes_after_any_step(tmp_path, step):
    whole = train_by_hand()
    with pytest.raises(RunStoppedError):
        train(tmp_path, stop=step + 1)
    net = train(tmp_path, checkpoint=tmp_path / f"checkpoint_{step}.pt")
    assert net.rows == whole.rows[step:]
    assert net.losses == whole.losses[step:]
    assert net.weights == whole.weights


def test_an_evaluator_sees_every_row_in_each_run():
    seen = []
    evaluator = Engine(lambda engine, batch: seen.extend(batch["row"].tolist()))
    loader = make_loader(rows=40, shuffle=False)
    for _ in range(2):
        evaluator.run(loader)
    assert seen == [*range(40)] * 2


def test_the_example_of_the_documentation_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_example("PyTorch-Ignite")["train"].state_dict()["epoch"] == 2

"""Loaders inside fastai."""

import pytest
import torch
from fastai.callback.core import Callback
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from fastai.optimizer import SGD
from tests.adapters.trainers.training import (
    EPOCHS,
    STEPS,
    Net,
    RunStoppedError,
    expected_rows,
    flatten,
    make_pipeline,
    run_example,
    train_by_hand,
)

pytestmark = pytest.mark.filterwarnings("ignore")


def to_tuple(batch):
    """Return the inputs and the target, as fastai expects them."""
    return batch["x"], batch["row"], batch["labels"]


class TupleNet(Net):
    """A model that returns its predictions, because fastai computes the loss."""

    def forward(self, x, row):
        (self.rows if self.training else self.validated).append(row.tolist())
        return self.layer(x)


def make_learner(folder, *callbacks):
    loaders = DataLoaders(
        make_pipeline().map(to_tuple).feed("loader"),
        make_pipeline(rows=40, shuffle=False).map(to_tuple).feed("loader"),
        device=torch.device("cpu"),
    )
    return Learner(
        loaders, TupleNet(), torch.nn.functional.mse_loss, SGD, lr=0.1, cbs=list(callbacks), path=folder, model_dir="."
    )


class Stop(Callback):
    """Saves model and loader after some steps, and ends the run as a crash would."""

    def __init__(self, step):
        self._step = step

    def after_batch(self):
        if self.training and self.train_iter == self._step:
            self.learn.save("model")
            torch.save(self.dls.train.state_dict(), self.learn.path / "loader.pt")
            raise RunStoppedError("after the step of the test")


def fit(learner, epochs):
    with learner.no_logging():
        learner.fit(epochs)
    return learner.model


def test_a_run_sees_the_epochs_of_the_feed(tmp_path):
    learner = make_learner(tmp_path)
    net, by_hand = fit(learner, EPOCHS), train_by_hand()
    assert net.rows == expected_rows()
    assert [loss.item() for loss in learner.recorder.losses] != []
    assert net.weights == by_hand.weights
    assert flatten(net.validated) == [*range(40)] * EPOCHS


@pytest.mark.parametrize("step", [1, 4, 5, 7])
def test_a_run_resumes_after_any_step(tmp_path, step):
    whole = train_by_hand()
    with pytest.raises(RunStoppedError):
        fit(make_learner(tmp_path, Stop(step)), EPOCHS)
    learner = make_learner(tmp_path)
    learner.load("model")
    learner.dls.train.load_state_dict(torch.load(tmp_path / "loader.pt"))
    net = fit(learner, EPOCHS - step // STEPS)
    assert net.rows == whole.rows[step:]
    assert net.weights == whole.weights


def test_the_example_of_the_documentation_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_example("fastai")["state"]["epoch"] == 2

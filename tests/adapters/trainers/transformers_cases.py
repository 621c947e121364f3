"""Loaders inside the Trainer of Hugging Face transformers."""

import importlib
import sys

import pytest
import torch
import transformers
from tests.adapters.trainers.ranked_runs import EPOCHS_OF_RANK, RESUMED_STEP, check_ranks
from tests.adapters.trainers.training import (
    BATCH,
    EPOCHS,
    STEPS,
    Net,
    RunStoppedError,
    expected_rows,
    flatten,
    make_endless_loader,
    make_loader,
    make_stream_loader,
    run_example,
    single_rows,
    train_by_hand,
)
from transformers import TrainerCallback, TrainingArguments

from forebay.adapters.transformers import TakesLoaders, Trainer
from forebay.errors import FeedError, FrameworkError

pytestmark = pytest.mark.filterwarnings("ignore")


class Stop(TrainerCallback):
    """Ends the run after some steps, as a crash would."""

    def __init__(self, step):
        self._step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self._step:
            raise RunStoppedError


def make_trainer(folder, *callbacks, loader=None, **options):
    options = {
        "num_train_epochs": EPOCHS,
        "per_device_train_batch_size": BATCH,
        "per_device_eval_batch_size": BATCH,
        "save_strategy": "no",
        "learning_rate": 0.1,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "max_grad_norm": 0.0,
    } | options
    arguments = TrainingArguments(folder, use_cpu=True, report_to=[], disable_tqdm=True, **options)
    return Trainer(
        Net(),
        arguments,
        train_dataset=loader or make_loader(),
        eval_dataset=make_loader(rows=40, shuffle=False),
        callbacks=list(callbacks),
    )


def train(folder, *callbacks, checkpoint=None, **options):
    trainer = make_trainer(folder, *callbacks, **options)
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer.model


def test_a_run_sees_the_epochs_of_the_feed(tmp_path):
    net, by_hand = train(tmp_path), train_by_hand()
    assert net.rows == expected_rows()
    assert net.losses == by_hand.losses
    assert net.weights == by_hand.weights


@pytest.mark.parametrize("step", [1, 4, 5, 6, 10, 13])
def test_a_run_resumes_after_any_step(tmp_path, step):
    whole = train_by_hand()
    with pytest.raises(RunStoppedError):
        train(tmp_path, Stop(step + 1), save_strategy="steps", save_steps=1)
    net = train(tmp_path, checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert net.rows == whole.rows[step:]
    assert net.losses == whole.losses[step:]
    assert net.weights == whole.weights


def test_a_run_resumes_from_the_checkpoint_of_an_epoch(tmp_path):
    whole = train_by_hand()
    with pytest.raises(RunStoppedError):
        train(tmp_path, Stop(2 * STEPS + 1), save_strategy="epoch")
    net = train(tmp_path, checkpoint=True, save_strategy="epoch")
    assert net.rows == whole.rows[2 * STEPS :]
    assert net.weights == whole.weights


def test_a_resumed_run_does_not_read_the_skipped_rows(tmp_path):
    with pytest.raises(RunStoppedError):
        train(tmp_path, Stop(4), save_strategy="steps", save_steps=1)
    loader = make_loader()
    train(tmp_path, checkpoint=str(tmp_path / "checkpoint-3"), loader=loader, num_train_epochs=1)
    assert loader.stats()["batches"] == 2


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_accumulated_gradients_are_the_same_after_a_resume(tmp_path, step):
    options = {"gradient_accumulation_steps": 2, "save_strategy": "steps", "save_steps": 1}
    whole = train(tmp_path / "whole", **options)
    with pytest.raises(RunStoppedError):
        train(tmp_path, Stop(step + 1), **options)
    net = train(tmp_path, checkpoint=str(tmp_path / f"checkpoint-{step}"), **options)
    assert net.rows == whole.rows[-len(net.rows) :]
    assert net.weights == whole.weights


def test_an_evaluation_sees_every_row_with_its_weight(tmp_path):
    trainer = make_trainer(tmp_path)
    loss = trainer.evaluate()["eval_loss"]
    assert flatten(trainer.model.validated) == list(range(40))
    trainer.model.eval()
    losses = [(trainer.model(**batch)["loss"].item(), len(batch["x"])) for batch in make_loader(rows=40, shuffle=False)]
    assert loss == pytest.approx(sum(value * rows for value, rows in losses) / 40)


def test_evaluations_during_a_run_do_not_move_the_training(tmp_path):
    net = train(tmp_path, eval_strategy="steps", eval_steps=2)
    assert net.rows == expected_rows()


def test_max_steps_stop_in_the_middle_of_an_epoch(tmp_path):
    assert train(tmp_path, max_steps=7).rows == expected_rows()[:7]


@pytest.mark.parametrize("make", [make_stream_loader, make_endless_loader])
@pytest.mark.parametrize("step", [2, 4])
def test_a_run_without_a_length_resumes(tmp_path, make, step):
    options = {"max_steps": 8, "save_strategy": "steps", "save_steps": 1}
    whole = train(tmp_path / "whole", loader=make(), **options)
    with pytest.raises(RunStoppedError):
        train(tmp_path, Stop(step + 1), loader=make(), **options)
    net = train(tmp_path, checkpoint=str(tmp_path / f"checkpoint-{step}"), loader=make(), **options)
    assert net.rows == whole.rows[step:]
    assert net.weights == whole.weights


def test_an_evaluation_during_a_run_takes_a_dict_of_loaders(tmp_path):
    trainer = make_trainer(tmp_path, eval_strategy="epoch", num_train_epochs=1)
    trainer.eval_dataset = {"first": make_loader(rows=40, shuffle=False), "second": make_loader(rows=10, shuffle=False)}
    trainer.train()
    assert flatten(trainer.model.validated) == [*range(40), *range(10)]
    assert {"eval_first_loss", "eval_second_loss"} <= set(trainer.evaluate())


def test_a_prediction_sees_every_row_in_order(tmp_path):
    trainer = make_trainer(tmp_path)
    assert trainer.predict(make_loader(rows=40, shuffle=False)).predictions.shape == (40, 1)
    assert flatten(trainer.model.validated) == list(range(40))


def test_the_trainer_still_takes_datasets(tmp_path):
    rows = [{name: torch.from_numpy(value) for name, value in row.items()} for row in single_rows(16)]
    trainer = make_trainer(tmp_path, loader=rows, num_train_epochs=1)
    trainer.train()
    assert sorted(flatten(trainer.model.rows)) == list(range(16))
    assert trainer.evaluate(rows)["eval_loss"] > 0
    assert len(trainer.predict(rows).predictions) == 16


@pytest.mark.parametrize("part", [lambda loader: loader, lambda loader: loader.dataset], ids=["loader", "dataset"])
def test_a_trainer_that_takes_no_loader_says_what_to_do(tmp_path, part):
    arguments = TrainingArguments(tmp_path, use_cpu=True, report_to=[], disable_tqdm=True)
    trainer = transformers.Trainer(Net(), arguments, train_dataset=part(make_loader()))
    with pytest.raises(FeedError, match=r"use the Trainer of forebay\.adapters\.transformers"):
        trainer.train()


def test_without_transformers_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "forebay.adapters.transformers")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(FrameworkError, match="pip install transformers"):
        importlib.import_module("forebay.adapters.transformers")


def test_another_trainer_takes_loaders_with_the_mixin(tmp_path):
    class Other(TakesLoaders, transformers.Trainer):
        pass

    arguments = TrainingArguments(tmp_path, use_cpu=True, report_to=[], disable_tqdm=True, num_train_epochs=1)
    trainer = Other(Net(), arguments, train_dataset=make_loader())
    trainer.train()
    assert trainer.model.rows == expected_rows(1)


def test_the_example_of_the_documentation_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_example("Hugging Face transformers")["train"].state_dict()["epoch"] == 2


def run_on_rank(folder):
    """Train on one rank of several; `ranked_runs.py` calls this."""
    options = {"ddp_backend": "gloo", "num_train_epochs": EPOCHS_OF_RANK}
    whole = train(folder, save_strategy="steps", save_steps=1, **options)
    return whole, train(folder, checkpoint=str(folder / f"checkpoint-{RESUMED_STEP}"), **options)


def test_ranks_divide_the_rows_once_and_take_equal_steps(tmp_path):
    check_ranks("transformers", tmp_path)

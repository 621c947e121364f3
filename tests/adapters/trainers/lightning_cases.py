"""Loaders inside PyTorch Lightning."""

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import BasePredictionWriter, Callback, ModelCheckpoint
from tests.adapters.trainers.ranked_runs import EPOCHS_OF_RANK, RANKS, RESUMED_STEP, check_ranks
from tests.adapters.trainers.training import (
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
    train_by_hand,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning warns about short epochs and few workers


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, index):
        return self.net(**batch)["loss"]

    def validation_step(self, batch, index):
        self.log("val_loss", self.net(**batch)["loss"])

    def predict_step(self, batch, index):
        return batch["row"].tolist()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Stop(Callback):
    """Ends the run after some steps, as a crash would."""

    def __init__(self, step):
        self._step = step

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self._step:
            raise RunStoppedError


def make_trainer(folder, *callbacks, **options):
    options = {"max_epochs": EPOCHS, "num_sanity_val_steps": 2} | options
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=list(callbacks),
        **options,
    )


def save_every_step(folder):
    return ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)


def save_every_epoch(folder):
    return ModelCheckpoint(folder, filename="epoch-{epoch}", save_top_k=-1)


def fit(folder, *callbacks, checkpoint=None, loader=None, validation=True, **options):
    module, trainer = Module(), make_trainer(folder, *callbacks, **options)
    validate = make_loader(rows=40, shuffle=False) if validation else None
    trainer.fit(module, loader or make_loader(), validate, ckpt_path=checkpoint)
    return module.net


def test_a_fit_sees_the_epochs_of_the_feed(tmp_path):
    net, by_hand = fit(tmp_path), train_by_hand()
    assert net.rows == expected_rows()
    assert net.losses == by_hand.losses
    assert net.weights == by_hand.weights


def test_each_validation_sees_every_row(tmp_path):
    net = fit(tmp_path, num_sanity_val_steps=2)
    validations = net.validated[2:]  # the check before the training takes two batches
    assert len(validations) == 3 * EPOCHS
    for epoch in range(EPOCHS):
        assert flatten(validations[3 * epoch : 3 * epoch + 3]) == list(range(40))


@pytest.mark.parametrize("step", [1, 4, 5, 6, 9, 10, 13])
def test_a_run_resumes_after_any_step(tmp_path, step):
    whole = train_by_hand()
    with pytest.raises(RunStoppedError):
        fit(tmp_path, save_every_step(tmp_path), Stop(step + 1))
    net = fit(tmp_path, checkpoint=tmp_path / f"step={step}.ckpt")
    assert net.rows == whole.rows[step:]
    assert net.losses == whole.losses[step:]
    assert net.weights == whole.weights


@pytest.mark.parametrize("validation", [True, False])
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_run_resumes_from_the_checkpoint_of_an_epoch(tmp_path, epoch, validation):
    whole = train_by_hand()
    with pytest.raises(RunStoppedError):
        fit(tmp_path, save_every_epoch(tmp_path), Stop((epoch + 1) * STEPS + 2), validation=validation)
    net = fit(tmp_path, checkpoint=tmp_path / f"epoch-epoch={epoch}.ckpt", validation=validation)
    assert net.rows == whole.rows[(epoch + 1) * STEPS :]
    assert net.weights == whole.weights


def test_a_run_with_fewer_batches_per_epoch_begins_each_epoch_at_its_first_batch(tmp_path):
    net = fit(tmp_path, save_every_epoch(tmp_path), limit_train_batches=2)
    rows = expected_rows()
    expected = [rows[epoch * STEPS + step] for epoch in range(EPOCHS) for step in range(2)]
    assert net.rows == expected
    resumed = fit(tmp_path, checkpoint=tmp_path / "epoch-epoch=0.ckpt", limit_train_batches=2)
    assert resumed.rows == expected[2:]


def test_a_stream_without_a_length_gives_every_row_in_each_epoch(tmp_path):
    net = fit(tmp_path, loader=make_stream_loader())
    assert flatten(net.rows) == list(range(70)) * EPOCHS


def test_an_endless_loader_ends_with_the_steps_of_the_trainer(tmp_path):
    net = fit(tmp_path, loader=make_endless_loader(), max_epochs=-1, max_steps=STEPS, validation=False)
    assert net.rows == expected_rows(1)


class PairModule(Module):
    def training_step(self, batch, index):
        self.net(**batch["short"])
        return self.net(**batch["long"])["loss"]


def fit_pair(folder, *callbacks, checkpoint=None):
    module = PairModule()
    loaders = {"long": make_loader(), "short": make_loader(rows=40)}
    make_trainer(folder, *callbacks).fit(module, loaders, ckpt_path=checkpoint)
    return module.net


@pytest.mark.parametrize("step", [3, 4, 5, 9])
def test_a_loader_that_is_repeated_inside_an_epoch_resumes(tmp_path, step):
    whole = fit_pair(tmp_path / "whole")
    with pytest.raises(RunStoppedError):
        fit_pair(tmp_path, save_every_step(tmp_path), Stop(step + 1))
    net = fit_pair(tmp_path, checkpoint=tmp_path / f"step={step}.ckpt")
    assert net.rows == whole.rows[2 * step :]
    assert net.weights == whole.weights


class Data(lightning.LightningDataModule):
    def train_dataloader(self):
        return make_loader()

    def val_dataloader(self):
        return make_loader(rows=40, shuffle=False)


@pytest.mark.parametrize("reload", [0, 1])
def test_loaders_of_a_data_module_see_every_epoch(tmp_path, reload):
    module, trainer = Module(), make_trainer(tmp_path, reload_dataloaders_every_n_epochs=reload)
    trainer.fit(module, datamodule=Data())
    assert module.net.rows == expected_rows()


def test_validation_in_the_middle_of_an_epoch_does_not_move_the_training(tmp_path):
    assert fit(tmp_path, val_check_interval=2).rows == expected_rows()


def test_accumulated_gradients_are_the_same_after_a_resume(tmp_path):
    whole = fit(tmp_path, accumulate_grad_batches=2)
    with pytest.raises(RunStoppedError):
        fit(tmp_path, save_every_step(tmp_path), Stop(6), accumulate_grad_batches=2)
    net = fit(tmp_path, checkpoint=tmp_path / "step=4.ckpt", accumulate_grad_batches=2)
    assert net.rows == whole.rows[-len(net.rows) :]
    assert net.weights == whole.weights


def test_a_validation_without_training_sees_every_row(tmp_path):
    module = Module()
    make_trainer(tmp_path).validate(module, make_loader(rows=40, shuffle=False), verbose=False)
    assert flatten(module.net.validated) == list(range(40))


class Predictions(BasePredictionWriter):
    """Keeps the row numbers that Lightning reports with each prediction."""

    def __init__(self):
        super().__init__("batch")
        self.found = []

    def write_on_batch_end(self, trainer, module, prediction, batch_indices, *_):
        self.found.append((prediction, list(batch_indices)))


def test_predictions_come_with_their_row_numbers(tmp_path):
    writer = Predictions()
    make_trainer(tmp_path, writer).predict(Module(), make_loader(rows=40, shuffle=False))
    assert flatten((rows for rows, _ in writer.found)) == list(range(40))
    assert all(rows == reported for rows, reported in writer.found)


def test_overfitting_repeats_the_first_batches(tmp_path):
    net = fit(tmp_path, overfit_batches=2, validation=False)
    assert net.rows == expected_rows(1)[:2] * EPOCHS


def test_the_example_of_the_documentation_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_example("PyTorch Lightning")["train"].state_dict()["epoch"] == 2


def run_on_rank(folder):
    """Train on one rank of several; `ranked_runs.py` calls this."""
    options = {"strategy": "ddp", "devices": RANKS, "max_epochs": EPOCHS_OF_RANK}
    whole = fit(folder, save_every_step(folder), **options)
    return whole, fit(folder, checkpoint=folder / f"step={RESUMED_STEP}.ckpt", **options)


def test_ranks_divide_the_rows_once_and_take_equal_steps(tmp_path):
    check_ranks("lightning", tmp_path)
    net = fit(tmp_path, checkpoint=tmp_path / f"step={RESUMED_STEP}.ckpt", max_epochs=EPOCHS_OF_RANK)
    assert len(set(flatten(net.rows))) == len(flatten(net.rows)) == 70 - 32  # one step of two ranks had 32 rows

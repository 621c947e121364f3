"""Loaders inside Hugging Face Accelerate."""

import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from tests.adapters.trainers.ranked_runs import EPOCHS_OF_RANK, RESUMED_STEP, check_ranks
from tests.adapters.trainers.training import (
    EPOCHS,
    STEPS,
    Net,
    RunStoppedError,
    expected_rows,
    flatten,
    make_loader,
    run_example,
    train_by_hand,
)

pytestmark = pytest.mark.filterwarnings("ignore")


def train(folder, *, stop=None, resume=False, save=True, epochs=EPOCHS):
    """Train as the documentation of Accelerate does.

    With `save`, save after each step. With `resume`, continue after the last saved step.
    """
    accelerator = Accelerator(cpu=True)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(net, optimizer, make_loader())
    if resume:
        accelerator.load_state(folder)
    for _ in range(loader.sampler.epoch, epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                optimizer.step()
                optimizer.zero_grad()
            if save:
                accelerator.save_state(folder)
            if len(net.rows) == stop:
                raise RunStoppedError
    return net


def test_prepare_returns_the_loader_itself():
    loader = make_loader()
    assert Accelerator(cpu=True).prepare(loader) is loader


def test_a_run_sees_the_epochs_of_the_feed(tmp_path):
    net, by_hand = train(tmp_path, save=False), train_by_hand()
    assert net.rows == expected_rows()
    assert net.losses == by_hand.losses
    assert net.weights == by_hand.weights


@pytest.mark.parametrize("step", [1, 4, 5, 6, 10, 13])
def test_a_run_resumes_after_any_step(tmp_path, step):
    whole = train_by_hand()
    with pytest.raises(RunStoppedError):
        train(tmp_path, stop=step)
    net = train(tmp_path, resume=True)
    assert net.rows == whole.rows[step:]
    assert net.losses == whole.losses[step:]
    assert net.weights == whole.weights


def test_the_last_batch_of_an_epoch_ends_an_accumulation(tmp_path):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, loader = accelerator.prepare(Net(), make_loader())
    ends = []
    for _ in range(2):
        for _batch in loader:
            with accelerator.accumulate(model):
                ends.append(accelerator.sync_gradients)
    assert ends == [False, True, False, True, True] * 2
    assert not accelerator.gradient_state.in_dataloader


def test_skipped_batches_are_not_read():
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(make_loader())
    rows = expected_rows()
    skipped = skip_first_batches(loader, 3)
    assert len(skipped) == 2
    assert [batch["row"].tolist() for batch in skipped] == rows[3:STEPS]
    assert loader.stats()["batches"] == 2
    assert [batch["row"].tolist() for batch in loader] == rows[STEPS : 2 * STEPS]


def test_metrics_keep_all_rows_of_the_last_batch():
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(make_loader(rows=40, shuffle=False))
    gathered = [accelerator.gather_for_metrics(batch["row"]).tolist() for batch in loader]
    assert flatten(gathered) == list(range(40))


def test_a_state_can_be_registered_as_well(tmp_path):
    accelerator, loader = Accelerator(cpu=True), make_loader()
    accelerator.register_for_checkpointing(loader)
    batches = iter(loader)
    next(batches), next(batches)
    accelerator.save_state(tmp_path)
    accelerator, resumed = Accelerator(cpu=True), make_loader()
    accelerator.register_for_checkpointing(resumed)
    accelerator.load_state(tmp_path)
    assert [batch["row"].tolist() for batch in resumed] == expected_rows()[2:STEPS]


def test_the_example_of_the_documentation_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_example("Hugging Face Accelerate")["train"].state_dict()["epoch"] == 2


def run_on_rank(folder):
    """Train on one rank of several; `ranked_runs.py` calls this."""
    whole = train(folder, save=False, epochs=EPOCHS_OF_RANK)
    with pytest.raises(RunStoppedError):
        train(folder, stop=RESUMED_STEP, epochs=EPOCHS_OF_RANK)
    return whole, train(folder, resume=True, epochs=EPOCHS_OF_RANK)


def test_ranks_divide_the_rows_once_and_take_equal_steps(tmp_path):
    check_ranks("accelerate", tmp_path)

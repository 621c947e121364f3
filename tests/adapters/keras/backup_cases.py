"""An interrupted fit with a backup continues with the next row, with the same losses.

`tests/test_framework_cases.py` runs this file once for each backend, in its own process, because Keras cannot change
its backend.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from tests.adapters.keras.backup_runs import (
    EPOCHS,
    STEPS,
    InterruptedFitError,
    RecordedLoss,
    StopAtStep,
    fit_with_backup,
    interrupt,
    make_adam,
    make_pipeline,
)
from tests.adapters.keras.conftest import BATCH, ROWS
from tests.adapters.keras.keras_models import Hook, not_torch, weights_of
from tests.support.paths import ROOT

import forebay as fb
from forebay.errors import PipelineError, StateError


@pytest.fixture(scope="module")
def whole():
    """A fit without an interruption."""
    with make_pipeline().batch(BATCH).feed("keras") as feed:
        model = make_adam(RecordedLoss(), run_eagerly=True)
        model.history_of_fit = model.fit(feed, epochs=EPOCHS, verbose=0).history
    return model


def interrupt_fit(folder, step, **options):
    with pytest.raises(InterruptedFitError):
        fit_with_backup(folder, callbacks=[StopAtStep(step, interrupt)], **options)


def backup_step(step, save_freq):
    """Return the step of the last backup before an interruption after `step`."""
    every = STEPS if save_freq == "epoch" else save_freq
    # on_epoch_end writes the backup of an epoch. An interruption after its last step comes before on_epoch_end.
    return (step - 1) // STEPS * STEPS if save_freq == "epoch" else step // every * every


def assert_continues(whole, resumed, step):
    """Check rows, losses and weights of a fit that was resumed after `step`."""
    assert resumed.loss.batches == whole.loss.batches[step:]
    assert resumed.loss.losses == whole.loss.losses[step:]
    for got, expected in zip(weights_of(resumed), weights_of(whole), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("save_freq", "step"), [("epoch", 4), ("epoch", 6), ("epoch", 14), (1, 1), (1, 5), (2, 9), (3, 2), (3, 14), (5, 6)]
)
def test_an_interrupted_fit_continues_with_the_same_rows_and_losses(whole, tmp_path, save_freq, step):
    folder = tmp_path / "backup"
    interrupt_fit(folder, step, save_freq=save_freq)
    resumed, history = fit_with_backup(folder, save_freq=save_freq)
    assert_continues(whole, resumed, backup_step(step, save_freq))
    whole_epochs = EPOCHS - 1 - backup_step(step, save_freq) // STEPS
    expected = whole.history_of_fit["loss"]
    assert history["loss"][len(history["loss"]) - whole_epochs :] == expected[EPOCHS - whole_epochs :]
    assert not folder.exists()


def test_a_fit_that_is_interrupted_twice_continues(whole, tmp_path):
    interrupt_fit(tmp_path / "backup", 8, save_freq=2)
    interrupt_fit(tmp_path / "backup", 3, save_freq=2)
    resumed, _ = fit_with_backup(tmp_path / "backup", save_freq=2)
    assert_continues(whole, resumed, 10)


def test_a_killed_process_continues_in_another_process(whole, tmp_path):
    folder = tmp_path / "backup"
    script = Path(__file__).with_name("killed_fit.py")
    settings = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(fb.__file__).parents[1])])}
    command = [sys.executable, str(script), str(folder), "2", "9"]  # saves every 2 steps, and is killed after 9
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=500)
    assert done.returncode == -signal.SIGKILL, done.stderr
    resumed, _ = fit_with_backup(folder, save_freq=2)
    assert_continues(whole, resumed, 8)


@pytest.mark.parametrize("writes_weights", [False, True])
@pytest.mark.parametrize(("save_freq", "backup"), [(2, 3), ("epoch", 2)])
def test_a_backup_that_is_interrupted_between_two_files_is_consistent(
    whole, tmp_path, monkeypatch, writes_weights, save_freq, backup
):
    saved = []

    def save_weights(self, filepath, overwrite=True):
        saved.append(filepath)
        if len(saved) < backup or writes_weights:
            keras.saving.save_weights(self, filepath, overwrite=overwrite)
        if len(saved) == backup:
            raise InterruptedFitError

    with monkeypatch.context() as patch:
        patch.setattr(keras.Model, "save_weights", save_weights)
        with pytest.raises(InterruptedFitError):
            fit_with_backup(tmp_path / "backup", save_freq=save_freq)
    resumed, _ = fit_with_backup(tmp_path / "backup", save_freq=save_freq)
    every = STEPS if save_freq == "epoch" else save_freq
    assert_continues(whole, resumed, every * (backup if writes_weights else backup - 1))


def test_after_damaged_weights_a_fit_continues_from_the_previous_backup(whole, tmp_path):
    folder = tmp_path / "backup"
    interrupt_fit(folder, 8, save_freq=2, double_checkpoint=True)
    (folder / "latest.weights.h5").write_bytes(b"damaged")
    resumed, _ = fit_with_backup(folder, save_freq=2, double_checkpoint=True)
    assert_continues(whole, resumed, 6)


def test_the_same_model_and_feed_continue_after_an_error(whole, tmp_path):
    model = make_adam(type(whole.loss)(), run_eagerly=True)
    feed = make_pipeline().batch(BATCH).feed("keras")
    stop = StopAtStep(7, interrupt)
    with pytest.raises(InterruptedFitError):
        model.fit(feed, epochs=EPOCHS, verbose=0, callbacks=[feed.backup_and_restore(tmp_path, save_freq=3), stop])
    seen = len(model.loss.batches)
    model.fit(feed, epochs=EPOCHS, verbose=0, callbacks=[feed.backup_and_restore(tmp_path, save_freq=3)])
    assert model.loss.batches[seen:] == whole.loss.batches[6:]
    for got, expected in zip(weights_of(model), weights_of(whole), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("step", [2, 8])
def test_a_compiled_fit_continues_with_the_same_weights(tmp_path, step):
    whole, _ = fit_with_backup(tmp_path / "whole", model=make_adam())
    interrupt_fit(tmp_path / "backup", step, model=make_adam(), save_freq=2)
    resumed, _ = fit_with_backup(tmp_path / "backup", model=make_adam(), save_freq=2)
    for got, expected in zip(weights_of(resumed), weights_of(whole), strict=True):
        np.testing.assert_array_equal(got, expected)


@not_torch
def test_a_fit_with_several_steps_per_execution_continues(tmp_path):
    whole, _ = fit_with_backup(tmp_path / "whole", model=make_adam(steps_per_execution=2))
    interrupt_fit(tmp_path / "backup", 5, model=make_adam(steps_per_execution=2), save_freq=2)
    resumed, _ = fit_with_backup(tmp_path / "backup", model=make_adam(steps_per_execution=2), save_freq=2)
    for got, expected in zip(weights_of(resumed), weights_of(whole), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("step", [1, 3, 8])
def test_a_resumed_epoch_takes_only_the_remaining_steps_of_steps_per_epoch(tmp_path, step):
    options = {"pipeline": make_pipeline().batch(BATCH).repeat(), "fit": {"steps_per_epoch": 3}, "save_freq": 1}
    whole, history = fit_with_backup(tmp_path / "whole", **options)
    interrupt_fit(tmp_path / "backup", step, **options)
    resumed, resumed_history = fit_with_backup(tmp_path / "backup", **options)
    assert len(whole.loss.batches) == 3 * EPOCHS
    assert_continues(whole, resumed, step)
    assert resumed_history["loss"][1:] == history["loss"][EPOCHS - len(resumed_history["loss"]) + 1 :]


def test_validation_does_not_disturb_a_resumed_fit(whole, tmp_path):
    x = np.zeros((20, 4), "float32")
    validation = fb.from_arrays((x, x[:, :1])).batch(7).feed("keras")
    fit = {"validation_data": validation}
    interrupt_fit(tmp_path / "backup", 7, save_freq=2, fit=fit)
    rows_of_validation = [[0] * 7, [0] * 7, [0] * 6]
    resumed, history = fit_with_backup(tmp_path / "backup", save_freq=2, fit=fit)
    trained = [batch for batch in resumed.loss.batches if batch not in rows_of_validation]
    assert trained == whole.loss.batches[6:]
    assert len(history["val_loss"]) == 2


def test_a_fit_resumes_with_another_batch_size(whole, tmp_path):
    interrupt_fit(tmp_path / "backup", 6, save_freq=3)
    resumed, history = fit_with_backup(tmp_path / "backup", save_freq=3, pipeline=make_pipeline().batch(10))
    rows = [row for batch in whole.loss.batches for row in batch]
    assert resumed.loss.rows == rows[ROWS + BATCH :]
    assert len(history["loss"]) == 2


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras warns whenever data of unknown length ends
@pytest.mark.parametrize(("save_freq", "step"), [(2, 3), (2, 6), (5, 6), ("epoch", 12)])
def test_a_fit_of_a_stream_continues(tmp_path, save_freq, step):
    def rows():
        for row in range(ROWS):
            yield np.full(4, row / ROWS, "float32"), np.full(1, row, "float32")

    options = {"pipeline": fb.from_generator(rows).batch(BATCH), "save_freq": save_freq}
    whole, _ = fit_with_backup(tmp_path / "whole", **options)
    interrupt_fit(tmp_path / "backup", step, **options)
    resumed, _ = fit_with_backup(tmp_path / "backup", **options)
    assert_continues(whole, resumed, backup_step(step, save_freq))


def test_a_fit_that_starts_at_a_later_epoch_is_backed_up_with_its_epoch(tmp_path):
    epochs = []
    fit = {"initial_epoch": 1}
    interrupt_fit(tmp_path / "backup", 3, save_freq=2, fit=fit)
    count = Hook(on_epoch_begin=lambda epoch, logs=None: epochs.append(epoch))
    fit_with_backup(tmp_path / "backup", save_freq=2, fit=fit, callbacks=[count])
    assert epochs == [1, 2]


def test_a_fit_resumes_from_a_model_checkpoint_and_a_saved_state(tmp_path):
    whole, history = fit_with_backup(tmp_path / "whole", model=make_adam())
    feed, model, states = make_pipeline().batch(BATCH).feed("keras"), make_adam(), []
    save_model = keras.callbacks.ModelCheckpoint(str(tmp_path / "model.keras"))
    save_state = Hook(on_epoch_end=lambda epoch, logs=None: states.append(json.dumps(feed.state_dict())))
    model.fit(feed, epochs=1, callbacks=[save_model, save_state], verbose=0)
    resumed = keras.models.load_model(tmp_path / "model.keras")
    feed = make_pipeline().batch(BATCH).feed("keras")
    feed.load_state_dict(json.loads(states[0]))
    assert resumed.fit(feed, epochs=EPOCHS, initial_epoch=1, verbose=0).history["loss"] == history["loss"][1:]
    for got, expected in zip(weights_of(resumed), weights_of(whole), strict=True):
        np.testing.assert_array_equal(got, expected)


# Errors


def test_weights_without_a_state_of_the_feed_are_refused(tmp_path):
    interrupt_fit(tmp_path, 4, save_freq=2)
    (tmp_path / "feed_states.json").unlink()
    with pytest.raises(StateError, match="has weights, but no state of the feed for them"):
        fit_with_backup(tmp_path, save_freq=2)


def test_damaged_states_are_refused(tmp_path):
    interrupt_fit(tmp_path, 4, save_freq=2)
    (tmp_path / "feed_states.json").write_text("{")
    with pytest.raises(StateError, match=r"feed_states.json is damaged"):
        fit_with_backup(tmp_path, save_freq=2)


def test_a_backup_of_another_pipeline_is_refused(tmp_path):
    interrupt_fit(tmp_path, 4, save_freq=2)
    way_out = f"from the folder {tmp_path}: .*shuffle.* differ.* Or delete {tmp_path} to train from the beginning"
    with pytest.raises(StateError, match=way_out):
        fit_with_backup(tmp_path, save_freq=2, pipeline=make_pipeline().shuffle(seed=9).batch(BATCH))


def test_the_states_of_the_last_three_backups_are_kept(tmp_path):
    interrupt_fit(tmp_path, 9, save_freq=2)
    states = json.loads((tmp_path / "feed_states.json").read_text())["backups"]
    assert [state["feed_state"]["position"] for state in states] == [4 * BATCH, BATCH, 3 * BATCH]
    assert [(state["epoch"], state["finished_steps"]) for state in states] == [(0, 4), (1, 1), (1, 3)]


def test_a_model_without_an_optimizer_is_refused(tmp_path, pipeline):
    feed = pipeline.feed("keras")
    backup = feed.backup_and_restore(tmp_path)
    backup.set_model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    with pytest.raises(PipelineError, match="no optimizer"):
        backup.on_train_begin()


def test_a_backup_of_another_feed_than_that_of_fit_is_refused(tmp_path, arrays, pipeline):
    backup = pipeline.feed("keras").backup_and_restore(tmp_path)
    for data in ((pipeline.feed("keras"),), arrays):
        with pytest.raises(PipelineError, match="belongs to another feed than the one that fit"):
            make_adam().fit(*data, callbacks=[backup], verbose=0)


def test_the_backup_callback_of_keras_causes_a_warning(tmp_path, pipeline):
    backup = keras.callbacks.BackupAndRestore(tmp_path)
    with pytest.warns(UserWarning, match=r"does not restore the position.*feed\.backup_and_restore") as warned:
        make_adam().fit(pipeline.feed("keras"), epochs=2, callbacks=[backup], verbose=0)
    assert [warning.category for warning in warned].count(UserWarning) == 1


def test_a_folder_in_a_store_is_refused(pipeline):
    with pytest.raises(PipelineError, match="not a local folder"):
        pipeline.feed("keras").backup_and_restore("gs://bucket/backup")

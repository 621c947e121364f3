"""Runs that were recorded on an H200: every fault is named on its line, none of the cured twins is accused of it, and
what the cure wins is predicted.

The scripts are those of `cures/`; a capture is what `forebay doctor --capture` kept of one. `measured.json` holds what
a stopwatch made of a step of each, in milliseconds, when nobody watched. Those of CuPy, and jax/overlap, are without
records of CUDA's calls; of tensorflow/eager half of the recorded steps were kept.
"""

import json
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from forebay.doctor.analyse.verdict import judge
from forebay.doctor.captured import Capture

FOLDER = Path(__file__).parent / "recorded"
MEASURED = json.loads((FOLDER / "measured.json").read_text())
# Of a step: what is left of a fault when it was cured as well as can be. TensorFlow takes that long for the numbers of
# the rows that are then taken on the device.
LITTLE = 0.15


class Fault(NamedTuple):
    """What may be accused, and where."""

    line: str  # how it begins
    rules: set[str]


# A batch that is put together on the host and sent from there is all of these: whose cure wins most is told.
SENT = {"pageable_upload", "made_in_loop", "fits_on_device"}

FAULTS = {
    # Rows are drawn from an array that would fit on the device. JAX does not tell from what memory it sends.
    "torch/resident": Fault("batch = torch.from_numpy(images[drawn]).to(device)", SENT),
    "cupy/conversion_in_loop": Fault("batch = cupy.asarray(images[drawn])", SENT),
    "jax/conversion_in_loop": Fault("batch = jnp.asarray(images[drawn])", SENT | {"conversion_in_loop"}),
    "tensorflow/conversion_in_loop": Fault(
        "batch = tf.convert_to_tensor(images[drawn])", SENT | {"conversion_in_loop"}
    ),
    # The same array crosses at every step.
    "torch/repeated_upload": Fault("offsets = torch.from_numpy(positions).to(device)", {"repeated_upload"}),
    "jax/repeated_upload": Fault("offsets = jnp.asarray(positions)", {"repeated_upload"}),
    "cupy/repeated_upload": Fault("offsets = cupy.asarray(positions)", {"repeated_upload"}),
    # A number is asked for at every step, and the loop waits for all that was queued before.
    "torch/read_back": Fault("losses.append(loss.item())", {"read_back"}),
    "jax/read_back": Fault("losses.append(float(loss))", {"read_back"}),
    "cupy/read_back": Fault("residuals.append(float(state.mean()))", {"read_back"}),
    "tensorflow/read_back": Fault("losses.append(loss.numpy())", {"read_back"}),
    # A copy and the computing that wants it take turns; page-locked or not, it is the turns that cost.
    "torch/overlap": Fault("window = recording[start : start + batch_rows].to(", {"copy_not_overlapped"}),
    "jax/overlap": Fault("return jax.device_put(recording[start : start + ba", {"copy_not_overlapped"}),
    # A slice of a tensor that nobody has page-locked.
    "torch/pageable_upload": Fault("window = recording[start : start + batch_rows].to(", {"pageable_upload"}),
    # float64 that is made float32 when it has arrived: half of what crosses is thrown away.
    "torch/wide_dtype": Fault("window = recording[start : start + batch_rows].to(", {"wide_dtype"}),
    # No workers, nothing pinned: the loop makes its batches itself.
    "torch/loader": Fault("loader = DataLoader(Pictures(), batch_size=batch_r", {"loader"}),
    # Keras fetches the batch inside its compiled step, which computes nothing until that has crossed.
    "tensorflow/fit_arrays": Fault("model.fit(x, y", {"copy_not_overlapped"}),
    # One operation of several is placed on the CPU.
    "tensorflow/placement": Fault("hidden = tf.clip_by_value(hidden, 0.0, 6.0)", {"placement"}),
    # Five hundred operations a step, one by one from Python.
    "tensorflow/eager": Fault("optimizer.apply_gradients(", {"eager"}),
    # Two hundred kernels of a few microseconds each.
    "torch/launch_bound": Fault("optimizer.step()", {"launch_bound"}),
}
# What the twin does, as the cure that does it begins.
CURES = {
    "torch/resident": "if all of the data fits",
    "torch/repeated_upload": "convert it",
    "torch/read_back": "let results",
    "torch/overlap": "copy the next batch",
    "torch/pageable_upload": "lock the memory",
    "torch/wide_dtype": "narrow",
    "torch/loader": "give it workers",
    "torch/launch_bound": "launch the step",
    "jax/conversion_in_loop": "if all of the data fits",
    "jax/repeated_upload": "convert it",
    "jax/read_back": "let results",
    "jax/overlap": "let a feed",
    "tensorflow/conversion_in_loop": "if all of the data fits",
    "tensorflow/eager": "compile the step",
    "tensorflow/placement": "place it",
    "tensorflow/read_back": "let results",
    "cupy/conversion_in_loop": "if all of the data fits",
    "cupy/repeated_upload": "convert it",
    "cupy/read_back": "let results",
}
MEDIAN_ERROR, WORST_ERROR = 0.1, 0.25  # of the twin's step

TWINS = [name for name in FAULTS if f"{name}_cured" in MEASURED]


@cache
def verdict_on(name):
    return judge(Capture.load(FOLDER / f"{name}.gz"))


def cure_of(name):
    return next(cure for cure in verdict_on(name).main.cures if cure.title.startswith(CURES[name]))


def missed(name):
    """By how much of the twin's step the prediction misses it."""
    predicted = verdict_on(name).case.step_seconds - cure_of(name).win
    return abs(predicted * 1e3 / MEASURED[f"{name}_cured"] - 1)


def test_every_recording_is_a_fault_or_the_twin_of_one_and_was_measured():
    recorded = {f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*.gz")}
    assert recorded == set(MEASURED) == {*FAULTS, *(f"{name}_cured" for name in TWINS)}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_comes_first_and_on_its_line(name):
    found = verdict_on(name).main
    assert found.rule in FAULTS[name].rules
    assert found.line.text.startswith(FAULTS[name].line)


@pytest.mark.parametrize("name", TWINS)
def test_a_cured_twin_is_not_held_back_by_it(name):
    verdict = verdict_on(f"{name}_cured")
    accused = verdict.main is not None and verdict.main.rule in FAULTS[name].rules
    assert not accused or verdict.share(verdict.main) < LITTLE


@pytest.mark.parametrize("name", CURES)
def test_what_the_cure_wins_comes_of_running_the_steps_again(name):
    assert cure_of(name).how.startswith("the recorded steps run again with it")


@pytest.mark.parametrize("name", CURES)
def test_the_twin_takes_about_what_was_predicted(name):
    assert missed(name) <= WORST_ERROR


def test_half_of_the_twins_take_nearly_what_was_predicted():
    assert median(map(missed, CURES)) <= MEDIAN_ERROR


def test_a_loop_of_keras_is_told_to_read_less_often_as_nobody_can_change_its_calls():
    read = next(found for found in verdict_on("tensorflow/fit_arrays").findings if found.rule == "read_back")
    assert [cure.code for cure in read.cures if "steps_per_execution" not in cure.code] == []


@pytest.mark.parametrize("name", FAULTS)
def test_nearly_every_byte_that_crossed_is_some_lines(name):
    view = verdict_on(name).case.device
    assert (view.coverage("host to device") or 1.0) >= 0.95
    assert (view.coverage("device to host") or 1.0) >= 0.95


def test_shares_of_a_launch_bound_step_are_those_of_a_step_that_nobody_recorded():
    case = verdict_on("torch/launch_bound").case
    computing = case.device.working.length / 1e9 / len(case.device)
    assert case.step_parts["computing"] / case.step_seconds == pytest.approx(computing / case.step_seconds, abs=0.05)
    host = case.step_parts["launching"] + case.step_parts["Python"]
    assert host / case.step_seconds == pytest.approx(1 - computing / case.step_seconds, abs=0.05)


@pytest.mark.parametrize("name", MEASURED)
def test_every_rule_could_be_asked(name):
    assert verdict_on(name).silent == ()


@pytest.mark.parametrize("name", FAULTS)
def test_the_device_was_recorded_with_every_fault(name):
    view = verdict_on(name).case.device
    assert view is not None
    assert view.kernels_per_step >= 1
    assert len(view) >= 4

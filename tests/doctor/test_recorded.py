"""Runs that were recorded on an H200: every fault is named on its line, and none of the cured twins is accused of it.

The scripts are those of `cures/`; a capture is what `forebay doctor --capture` kept of one. `measured.json` holds what
a stopwatch made of a step of each, in milliseconds, when nobody watched.
"""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from forebay.doctor.analyse.verdict import judge
from forebay.doctor.captured import Capture

FOLDER = Path(__file__).parent / "recorded"
MEASURED = json.loads((FOLDER / "measured.json").read_text())
LITTLE = 0.1  # of a step: what is left of a fault when it was cured as well as can be


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
    # Two hundred kernels of a few microseconds each.
    "torch/launch_bound": Fault("optimizer.step()", {"launch_bound"}),
}
TWINS = [name for name in FAULTS if f"{name}_cured" in MEASURED]


@cache
def verdict_on(name):
    return judge(Capture.load(FOLDER / f"{name}.gz"))


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


@pytest.mark.parametrize("name", MEASURED)
def test_every_rule_could_be_asked(name):
    assert verdict_on(name).silent == ()


@pytest.mark.parametrize("name", FAULTS)
def test_the_device_was_recorded_with_every_fault(name):
    view = verdict_on(name).case.device
    assert view is not None
    assert view.kernels_per_step >= 1
    assert len(view) >= 4

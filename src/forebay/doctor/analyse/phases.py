"""The phases of a training step that runs on the CPU: forward, backward and optimizer, from samples of the host.

On the CPU, frameworks compute inside their calls, and few of these calls are recorded. So the time outside of recorded
calls is most of the step. The sampled functions show its phases. If the device was recorded, its records show better
parts.
"""

import re
from collections import Counter

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.host_lines import MIN_SAMPLES, unrecorded_samples
from forebay.doctor.analyse.loop_samples import trusted_share
from forebay.doctor.analyse.steps import REST
from forebay.doctor.model.events import HostSample

__all__ = ["FORWARD", "BACKWARD", "OPTIMIZER", "PHASES", "parts_of_step"]

PHASES = FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
# The first pattern that matches the sampled function decides.
_FUNCTIONS = {
    BACKWARD: re.compile(r"^torch\.(_tensor\.Tensor\.backward|autograd\.(backward|grad))$|GradientTape\.\w+$"),
    OPTIMIZER: re.compile(r"^torch\.optim\.|ptimizer\.(apply|apply_gradients|minimize|step|update)$"),
    FORWARD: re.compile(
        r"^torch\.(nn\.|functional\.|_tensor\.|\w+$)|^keras\.src\.(layers|losses|models|ops)\.|^tensorflow\.python\.ops\."
    ),
}
_OTHER_WORK = re.compile(r"^torch\.(save|load|from_numpy|tensor|as_tensor|manual_seed)$|zero_grad$")
_FORWARD_METHODS = ("forward", "call", "__call__")  # methods of layers; samples in C operators have no function


def parts_of_step(view: CaptureView) -> dict[str, float]:
    """Return the parts of a step in seconds, as reports show them.

    These are `view.step_parts`. Without device records, the part REST is split into phases if samples show a backward
    pass or an optimizer. The sum of all parts stays the same.
    """
    parts, samples = view.step_parts, unrecorded_samples(view) if view.device is None else []
    nanoseconds, counts = Counter[str](), Counter[str]()
    for sample in samples:
        nanoseconds[_phase_of(view, sample)] += sample.nanoseconds
        counts[_phase_of(view, sample)] += 1
    total = sum(nanoseconds.values())
    if len(samples) < MIN_SAMPLES or not total or not (counts[BACKWARD] or counts[OPTIMIZER]):
        return parts
    rest = parts[REST]
    phases = {phase: rest * nanoseconds[phase] / total * trusted_share(counts[phase]) for phase in _FUNCTIONS}
    ordered = {phase: phases[phase] for phase in PHASES}
    return (
        {name: seconds for name, seconds in parts.items() if name != REST}
        | ordered
        | {REST: max(0.0, rest - sum(phases.values()))}
    )


def _phase_of(view: CaptureView, sample: HostSample) -> str:
    """Return the phase that a sample shows; REST if it shows none."""
    if not sample.function:
        line = view.line(sample.line)
        is_layer = line is not None and line.function.rpartition(".")[2] in _FORWARD_METHODS
        return FORWARD if is_layer else REST
    if _OTHER_WORK.search(sample.function):
        return REST
    return next((phase for phase, pattern in _FUNCTIONS.items() if pattern.search(sample.function)), REST)

"""The phases of a training step on the CPU (forward, backward, optimizer), from host samples.

On the CPU, frameworks compute inside their calls, and the hooks record few of these calls. So most of the step is time
outside of recorded calls. The functions of the host samples show how this time divides into phases. With device
records, phases are not needed, because the records divide the step more precisely.
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
# Methods of layers. A sample without a function that is in such a method belongs to the forward phase: samples inside
# of operators written in C have no function.
_FORWARD_METHODS = ("forward", "call", "__call__")


def parts_of_step(view: CaptureView) -> dict[str, float]:
    """Return the parts of a step in seconds, as reports show them.

    These are `view.step_parts`. Without device records, the part REST is split into phases if samples show a backward
    pass or an optimizer. This does not change the sum of all parts.
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
    """Return the phase that a sample belongs to; REST if it belongs to none."""
    if not sample.function:
        line = view.line(sample.line)
        is_layer = line is not None and line.function.rpartition(".")[2] in _FORWARD_METHODS
        return FORWARD if is_layer else REST
    if _OTHER_WORK.search(sample.function):
        return REST
    return next((phase for phase, pattern in _FUNCTIONS.items() if pattern.search(sample.function)), REST)

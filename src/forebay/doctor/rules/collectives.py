"""Ranks that wait for each other in collectives while nothing else runs. XProf's limits: 3 % moderate, 15 % severe.

torch's own profiler tells from 10 % on.
"""

from collections.abc import Iterator

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.device_time import (
    COLLECTIVE,
    line_of,
    most_of,
    named,
    seconds_of,
    when,
    won_on_device,
)
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.events import Kind
from forebay.doctor.model.formatting import at_most, percent, seconds
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["examine"]

MODERATE, SEVERE = 0.03, 0.15  # of a step
HOW = "at most all of it, where it hides behind computing; what is a wait for a slower rank stays"


def examine(case: Case) -> Iterator[Finding]:
    view = case.device
    if view is None or not case.step_seconds:
        return
    together = named(view, COLLECTIVE.search)
    alone = when(view, together).without(when(view, view.are_kernels & ~together))
    cost = min(seconds_of(view, alone), case.step_seconds)
    if cost < MODERATE * case.step_seconds:
        return
    low, high = won_on_device(case, view, 0.0, cost)
    api = next((site.api for site in case.of(Kind.STEP, Kind.RUN)), "")
    share = cost / case.step_seconds
    yield Finding(
        rule="collectives",
        title=f"The device is alone with collectives {percent(share)} of a step",
        line=line_of(case, view, together),
        seconds=cost,
        cures=(Cure("less often, narrower, or meanwhile", _CODE.get(framework_of(case, api), _JAX), low, high, HOW),),
        evidence=(
            f"{'severe' if share >= SEVERE else 'moderate'}: {seconds(cost)} of "
            f"{seconds(seconds_of(view, when(view, together)))} of them, mostly {at_most(most_of(view, together), 50)}",
            "read the captures of all ranks together: the one that waits least there is the one they wait for",
        ),
    )


_JAX = "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true python train.py"
_CODE = {
    "torch": "model = DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True)\n"
    "model.register_comm_hook(None, default_hooks.bf16_compress_hook)   # half the bytes\n"
    "with model.no_sync(): ...   # all but the last of several small batches",
    "jax": _JAX,
    "tensorflow": "strategy = tf.distribute.MultiWorkerMirroredStrategy(...)   # gradients in bfloat16, larger batches",
}

"""Matrix products that pass the tensor cores by: float32 without TF32, float64, or sizes that they cannot take.

torch's profiler tells where none were used though some could be, XProf where less than 10 % computes in 16 bits. Names
of kernels say which: newer ones that carry no type are taken for good ones.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.device_time import line_of, most_of, named, seconds_of, when, won_on_device
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.events import Kind
from forebay.doctor.model.formatting import at_most, percent, seconds
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["examine"]

LEAST_SHARE = 0.1  # of a step
LEAST_COMPUTING = 0.7  # of the time: else it is something else that a step waits for, and precision is no cure for it
LONG_SECONDS = 100e-6  # of a kernel: a product that long is bound by computing, not by memory


@dataclass(frozen=True, slots=True)
class Slow:
    """A kind of products, and what makes them faster."""

    what: str
    pattern: re.Pattern[str]
    surely: float  # of their time that is won where they are long
    most: float
    cure: str
    code: dict[str, str]


def examine(case: Case) -> Iterator[Finding]:
    view = case.device
    if view is None or not case.step_seconds or seconds_of(view, view.computing) < LEAST_COMPUTING * case.step_seconds:
        return
    for slow in _SLOW:
        products = named(view, slow.pattern.search)
        cost = min(seconds_of(view, when(view, products)), case.step_seconds)
        if cost >= LEAST_SHARE * case.step_seconds:
            yield _finding(case, view, slow, products, cost)


def _finding(case: Case, view: DeviceView, slow: Slow, products: Any, cost: float) -> Finding:
    api = next((site.api for site in case.of(Kind.RUN, Kind.OPS, Kind.UPLOAD)), "")
    each = cost * view.done / max(1, int(products.sum()))
    surely = slow.surely if each >= LONG_SECONDS else 0.0
    low, high = won_on_device(case, view, cost * surely, cost * slow.most)
    how = f"tensor cores: at most {1 / (1 - slow.most):.0f} times as fast; products bound by memory win less"
    return Finding(
        rule="tensor_cores",
        title=f"{slow.what} take {percent(cost / case.step_seconds)} of a step, past the tensor cores",
        line=line_of(case, view, products),
        seconds=cost,
        cures=(Cure(slow.cure, slow.code.get(framework_of(case, api), slow.code["torch"]), low, high, how),),
        evidence=(
            f"mostly {at_most(most_of(view, products), 70)}",
            f"{products.sum() / view.done:.0f} of {view.kernels_per_step:.0f} kernels a step, {seconds(each)} each",
        ),
    )


_TF32 = {
    "torch": 'torch.set_float32_matmul_precision("high")   # TF32; or torch.autocast("cuda", dtype=torch.bfloat16)',
    "tensorflow": "tf.config.experimental.enable_tensor_float_32_execution(True)   # or the policy mixed_bfloat16",
    "jax": 'jax.config.update("jax_default_matmul_precision", "tensorfloat32")   # or arrays of bfloat16',
    "cupy": "CUPY_TF32=1 python train.py",
}
_NARROW = {
    "torch": "x, model = x.float(), model.float()   # and torch.set_default_dtype(torch.float32)",
    "tensorflow": 'x = tf.cast(x, tf.float32)   # once; keras.backend.set_floatx("float32")',
    "jax": 'x = x.astype("float32")   # and jax_enable_x64 not set',
    "cupy": 'x = x.astype("float32")   # once, in front of the loop',
}
_ALIGNED = {
    "torch": "layer = nn.Linear(512, 1008)   # multiples of 8: pad 1001 classes to 1008, a vocabulary to 50304",
    "tensorflow": "layer = keras.layers.Dense(1008)   # multiples of 8: pad 1001 classes to 1008",
    "jax": "x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % 8)))   # multiples of 8",
}
_SLOW = (
    Slow(
        "Products in float64",
        re.compile(r"dgemm|d884gemm|f64f64", re.IGNORECASE),
        0.3,
        15 / 16,
        "compute in float32",
        _NARROW,
    ),
    Slow(
        "Products in float32 without TF32",
        re.compile(r"sgemm|f32f32_f32f32", re.IGNORECASE),
        0.5,
        7 / 8,
        "let them use TF32, or 16 bits",
        _TF32,
    ),
    Slow(
        "Products of 16 bits whose sizes are no multiples of 8",
        re.compile(r"(f16|bf16|16816|1688|h884).*align[12](?!\d)", re.IGNORECASE),
        0.0,
        1 / 2,
        "pad sizes to multiples of 8",
        _ALIGNED,
    ),
)

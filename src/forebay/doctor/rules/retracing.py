"""A function that is compiled again and again while the loop runs, because what it is called with keeps changing."""

from collections import Counter
from collections.abc import Iterator

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.formatting import counted, seconds
from forebay.doctor.predict.cure_changes import removed
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import most_of_one

__all__ = ["examine", "recognises"]

FEWEST = 3  # in steady steps: a last, smaller batch is compiled for once
SURELY_WON = 0.8  # of the compiling: a form that fits all calls may itself be compiled once more, and run slower

_REASONS = {
    "shape": "its shapes change",
    "dtype": "its types change",
    "value": "a Python value it is given changes",
    "first": "it is new each time",
}


def recognises(case: Case, site: Site) -> bool:
    return most_of_one(site)[1] >= FEWEST


def examine(case: Case) -> Iterator[Finding]:
    for site in charged(case, "retracing"):
        cost, reason = cost_of(case, site.events), _reason(site)
        name, count = most_of_one(site)
        why = f", as {_REASONS[reason]}" if reason in _REASONS else ""
        times = f"{count} times in {site.steps} steps"
        how = "the compiling as measured, but for what one form for all calls may cost"
        code = _CURES.get((framework_of(case, site.api), reason)) or _OTHERWISE[_otherwise(reason)]
        yield Finding(
            rule="retracing",
            title=f"{name or site.api} is compiled {times}{why}",
            line=site.line,
            seconds=cost,
            cures=(Cure(_TITLES[_otherwise(reason)], code, cost * SURELY_WON, cost, how, removed(case, site)),),
            evidence=(f"{seconds(_each(site))} each time", *_signatures(site)),
        )


def _reason(site: Site) -> str:
    """The one that was told most often."""
    reasons = Counter(str(reason) for reason in site.values("reason") if reason)
    return reasons.most_common(1)[0][0] if reasons else ""


def _each(site: Site) -> float:
    return sum(event.seconds for event in site.events) / len(site.events)


def _signatures(site: Site) -> Iterator[str]:
    """What it was compiled for last, one after the other."""
    told = [str(signature) for signature in site.values("signature") if signature]
    if told:
        yield f"{counted(len(set(told)), 'signature')}, among them {'; '.join(dict.fromkeys(told[-2:]))}"


def _otherwise(reason: str) -> str:
    return reason if reason in _TITLES else "shape"


_TITLES = {
    "shape": "keep shapes the same, or compile for any",
    "dtype": "keep types the same",
    "value": "give numbers as tensors, not as Python's own",
    "first": "make the compiled function once",
}
_OTHERWISE = {
    "shape": "x = np.pad(x, [(0, LONGEST - len(x))] + [(0, 0)] * (x.ndim - 1))   # and drop_remainder=True for batches",
    "dtype": 'x = x.astype("float32")   # the same in every step',
    "value": "step(np.asarray(number))   # an array: only its shape and type count",
    "first": "compiled = ...   # made in front of the loop, called inside",
}
_CURES = {
    ("tensorflow", "shape"): "@tf.function(reduce_retracing=True)   # or input_signature=[tf.TensorSpec([None, 64])]\n"
    "def train_step(x): ...",
    ("tensorflow", "value"): "train_step(x, tf.constant(rate))   # a Python number is a new graph each time",
    ("torch", "shape"): "step = torch.compile(step, dynamic=True)",
    ("torch", "value"): "step(x, torch.tensor(rate))   # a Python number is compiled in",
    ("jax", "value"): "step(x, jnp.float32(rate))   # and not in static_argnums",
    ("jax", "first"): "step = jax.jit(step)   # in front of the loop: a lambda made inside is a new function each time",
    ("tensorflow", "first"): "step = tf.function(step)   # in front of the loop",
    ("torch", "first"): "step = torch.compile(step)   # in front of the loop",
}

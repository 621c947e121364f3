"""Hypothesis strategies for captures: random events, and mixed, scaled or incomplete faults."""

from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st
from tests.doctor.captures import LINES, LOOP, MS, OTHER, STEP_LINE, capture_of
from tests.doctor.rules.rule_captures import FAULTS, NEAR_MISSES, WARNINGS

from forebay.doctor.model.capture import Window
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["captures", "events"]

DTYPES = ["float64", "torch.float32", "int64", "<dtype: 'float16'>", "list", "", None]
DEVICES = ["cuda:0", "cpu", "/job:localhost/replica:0/task:0/device:GPU:0", "TFRT_CPU_0", "meta", None]
APIS = ["tf.constant", "Tensor.to", "float(array)", "step(x)", "DataLoader", "Model.fit", "jax.jit", "cupy.asarray", ""]
APIS += ["torch.autograd.set_detect_anomaly", "jax_disable_jit", "torch.profiler", "jax.debug.print", "tf.py_function"]
VARIABLES = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_LAUNCH_BLOCKING", "PYTHONDEVMODE", "NCCL_DEBUG"]
NUMBERS = ("count", "tiny", "batch_rows", "shuffle_rows", "constants_nbytes")

flags = st.sampled_from([True, False, None])
amounts = st.one_of(st.none(), st.integers(0, 1 << 40))
untraced = st.sampled_from([(), (1e-3,), (1e-5, 2e-5, 3e-5) * 2, (10.0,) * 5])
details = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(["a", "b", "c", "", None]),
        "dtype": st.sampled_from(DTYPES),
        "from_dtype": st.sampled_from(DTYPES),
        "device": st.sampled_from(DEVICES),
        "source": st.sampled_from(DEVICES),
        "target": st.sampled_from(DEVICES),
        "loader": st.sampled_from(["DataLoader", "tf.data", "arrays", "generator", None]),
        "what": st.sampled_from(["row", "collate", "map", "Dataset", "DataLoader", "Session", "function", "", None]),
        "reason": st.sampled_from(["first", "shape", "dtype", "value", "something", None]),
        "function": st.sampled_from(["step", "", None]),
        "signature": st.text(max_size=3),
        "op": st.sampled_from(["MatMul", None]),
        "workers": st.one_of(st.none(), st.integers(0, 64)),
        **dict.fromkeys(("pinned", "non_blocking", "prefetch"), flags),
        **dict.fromkeys(NUMBERS, amounts),
    },
)
SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*/*.py"))
EXCERPTS = [
    {"file": "train.py", "lines": [[number, text] for number, text in enumerate(path.read_text().split("\n"), 1)]}
    for path in SCRIPTS
]
events = st.builds(
    lambda length, **given: LedgerEvent(end=given["start"] + length, **given),
    kind=st.sampled_from([kind.value for kind in EventKind]),
    api=st.sampled_from(APIS),
    line=st.sampled_from([-1, 0, 1, STEP_LINE, 10_000]),
    thread=st.sampled_from([LOOP, LOOP, LOOP, OTHER]),
    start=st.integers(0, 100 * MS),
    length=st.integers(0, 30 * MS),
    nbytes=st.sampled_from([0, 4, 10_000, 5 << 20, 1 << 40]),
    detail=st.one_of(st.none(), details),
)
facts = st.fixed_dictionaries(
    {
        "peak_nbytes": amounts,
        "settings": st.dictionaries(
            st.sampled_from(VARIABLES),
            st.sampled_from(["1", "64", "", "x"]),
        ),
        "frameworks": st.dictionaries(
            st.sampled_from(["torch", "tensorflow", "jax", "cupy"]),
            st.fixed_dictionaries(
                {},
                optional={"gpus": st.integers(0, 8)}
                | dict.fromkeys(("run_eagerly", "jit_disabled"), flags)
                | dict.fromkeys(("free_nbytes", "total_nbytes", "peak_nbytes"), amounts),
            ),
        ),
        "script": st.sampled_from([{}, *({"files": [excerpt]} for excerpt in EXCERPTS)]),
    }
)


def _repeated(event, times):
    """Repeat an event every millisecond, so that rules find a recurring cost."""
    length = min(event.end - event.start, MS)
    return [event._replace(start=number * MS, end=number * MS + length) for number in range(times)]


def _step_ends(number):
    """Return `number` events that end steps, one millisecond apart."""
    return [LedgerEvent("step", "optimizer.step", STEP_LINE, LOOP, at * MS, at * MS) for at in range(number)]


def _mixed(first, second, **given):
    """Merge two captures. All events keep their times, so both loops run at the same time."""
    return capture_of([*first.events, *second.events], facts=first.facts | second.facts, **given)


def _degraded(capture, removed, time_factor, line):
    """Remove details from all events and multiply their times by a factor. Replace their line unless it is None."""
    changed = [
        event._replace(
            detail={name: value for name, value in (event.detail or {}).items() if name not in removed} or None,
            start=int(event.start * time_factor),
            end=int(event.end * time_factor),
            line=event.line if line is None else line,
        )
        for event in capture.events
    ]
    return replace(capture, events=tuple(changed))


random_captures = st.builds(
    lambda single, repeated, step_ends, **given: capture_of(
        [*single, *(event for series in repeated for event in series), *step_ends], **given
    ),
    single=st.lists(events, max_size=10),
    repeated=st.lists(st.builds(_repeated, events, st.integers(0, 100)), max_size=6),
    step_ends=st.integers(0, 40).map(_step_ends),
    lines=st.sampled_from([LINES, LINES[:1], ()]),
    machine=st.fixed_dictionaries({"cores": st.sampled_from([1, 8, None])}),
    window=untraced.map(lambda seconds: Window(untraced=seconds)),
    facts=facts,
)
faulty_captures = st.sampled_from([capture for _, capture, _ in (*FAULTS.values(), *WARNINGS.values())])
near_misses = st.sampled_from([capture for _, capture in NEAR_MISSES.values()])
changed_captures = st.builds(
    _degraded,
    st.one_of(
        faulty_captures,
        st.builds(_mixed, faulty_captures, st.one_of(faulty_captures, near_misses), untraced=untraced),
    ),
    removed=st.sets(
        st.sampled_from(["key", "pinned", "device", "loader", "workers", "what", "count", "tiny", "dtype"])
    ),
    time_factor=st.sampled_from([1e-4, 0.1, 1, 30]),
    line=st.sampled_from([None, None, -1, 10_000]),
)
captures = st.one_of(random_captures, faulty_captures, changed_captures)

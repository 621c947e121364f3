"""Synthetic captures for the rule tests: a loop of steps with the same sequence of events."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from forebay.doctor.model.capture import Capture, Window
from forebay.doctor.model.events import EventKind, HostSample, LedgerEvent, Line

MS = 1_000_000  # nanoseconds
LOOP, OTHER = 1, 2  # threads
STEP_LINE = 39

KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30

LINES = tuple(Line("train.py", number, "train", f"statement_{number}()") for number in range(STEP_LINE + 1))
MACHINE = {"cores": 8, "memory_nbytes": 32 * GiB}

TORCH = {"torch": {"gpus": 0, "threads": 8}}
TORCH_GPU = {"torch": {"gpus": 1, "threads": 8}}
TENSORFLOW = {"tensorflow": {"gpus": 0, "run_eagerly": False}}
TENSORFLOW_GPU = {"tensorflow": {"gpus": 1, "run_eagerly": False}}
JAX = {"jax": {"gpus": 0, "devices": 1, "jit_disabled": False}}
NNX_CALL = "flax.nnx.transforms.compilation.JitWrapped.__call__"  # a library function, as a host sample names it


def fresh(number: int) -> str:
    """Return a different key for every event."""
    return f"key {number}"


def same(number: int) -> str:
    """Return the same key for every event."""
    return "the key"


def keys_in_turn(different: int) -> Callable[[int], str]:
    """Return a function whose keys repeat after `different` events."""
    return lambda number: f"key {number % different}"


@dataclass(frozen=True)
class Happening:
    """An event that the steps of a loop repeat. A detail may be a function of the event number."""

    kind: EventKind
    api: str
    ms: float
    line: int
    nbytes: int
    detail: dict
    times: int = 1  # per step
    every: int = 1  # occurs only in every n-th step
    thread: int = LOOP
    inside: tuple["Happening", ...] = ()  # nested events, one after another; the first starts when this event starts

    def containing(self, *inside: "Happening") -> "Happening":
        return replace(self, inside=inside)


def happening(kind, api, ms=1.0, *, line=0, nbytes=0, times=1, every=1, thread=LOOP, **detail):
    return Happening(kind, api, ms, line, nbytes, detail, times, every, thread)


def upload(api="torch.tensor", ms=1.0, **given):
    return happening(EventKind.UPLOAD, api, ms, **{"key": fresh, "dtype": "float32", "nbytes": MiB} | given)


def to_gpu(ms=1.0, **given):
    """Return an upload of PyTorch from pageable memory to the GPU."""
    return upload("Tensor.to", ms, **{"device": "cuda:0", "pinned": False} | given)


def download(api="Tensor.item", ms=1.0, **given):
    return happening(EventKind.DOWNLOAD, api, ms, **{"device": "cuda:0", "nbytes": 4} | given)


def batch(api="DataLoader", ms=1.0, **given):
    return happening(EventKind.INPUT, api, ms, **{"loader": api} | given)


def prepare(what="row", ms=1.0, **given):
    return happening(EventKind.PREPARE, what, ms, what=what, **given)


def py_function(ms=1.0, **given):
    return happening(EventKind.PREPARE, "tf.py_function", ms, what="map", **given)


def compile_(api="tf.function", ms=1.0, **given):
    return happening(EventKind.COMPILE, api, ms, **given)


def build(api="DataLoader", ms=1.0, **given):
    return happening(EventKind.BUILD, api, ms, **{"what": api} | given)


def run(api="tf.function", ms=1.0, **given):
    return happening(EventKind.RUN, api, ms, **given)


def transform(api="jax.grad", ms=1.0, **given):
    return happening(EventKind.TRANSFORM, api, ms, **given)


def ops(operations, ms=1.0, api="tf.ops", **given):
    return happening(EventKind.OPS, api, ms, count=operations, **given)


def move(api="NonZero", ms=1.0, **given):
    return happening(
        EventKind.MOVE, api, ms, **{"op": api, "source": "GPU:0", "target": "CPU:0", "nbytes": MiB} | given
    )


def callback(api="jax.debug.print", ms=1.0, **given):
    return happening(EventKind.CALLBACK, api, ms, **{"thread": OTHER} | given)


def sync(api="torch.cuda.synchronize", ms=1.0, **given):
    return happening(EventKind.SYNC, api, ms, **given)


def loop(
    *happenings, ms=10.0, steps=50, marked=True, before=(), frameworks=None, facts=None, machine=None, untraced=()
):
    """Build a capture: events before the loop, then steps of at least `ms` milliseconds.

    If the steps are not marked, the doctor counts them by a repeated event.
    """
    numbers = count()
    events, now = [], 0
    for happened in before:
        now = _add(events, happened, now, numbers)
    for step in range(steps):
        start = now
        for happened in happenings:
            now = _add(events, happened, now, numbers) if step % happened.every == 0 else now
        now = max(now, start + int(ms * MS))
        if marked:
            events.append(LedgerEvent(EventKind.STEP, "optimizer.step", STEP_LINE, LOOP, now, now))
    return capture_of(events, frameworks=frameworks, facts=facts, machine=machine, untraced=untraced)


torch_loop = partial(loop, frameworks=TORCH)
tensorflow_loop = partial(loop, frameworks=TENSORFLOW)
jax_loop = partial(loop, frameworks=JAX)


def script(*lines, first=1):
    """Return the facts of a script whose first line has the number `first`."""
    numbered = [[first + index, text] for index, text in enumerate(lines)]
    return {"script": {"files": [{"file": "train.py", "lines": numbered}]}}


def fitted(*happenings, ms=2.0, backend="tensorflow", **settings):
    """Build the capture of `Model.fit` on the CPU, with settings of `model.compile`."""
    compiled = build("Model.compile", 0.01, what="Model", **{"steps_per_execution": 1, "run_eagerly": False} | settings)
    capture = loop(*happenings, ms=ms, before=[compiled], frameworks=TENSORFLOW, facts={"keras_backend": backend})
    events = [event._replace(api="Model.fit") if event.kind == EventKind.STEP else event for event in capture.events]
    return replace(capture, events=tuple(events))


def sampled(capture, *lines, thread=LOOP):
    """Add two samples per step for each (line, function, milliseconds), at the end of the step."""
    ends = [event.end for event in capture.events if event.kind == EventKind.STEP]
    samples = [
        HostSample(end - (1 + position) * MS // 100, int(ms * MS / 2), thread, line, function)
        for end in ends
        for position, (line, function, ms) in enumerate([*lines, *lines])
    ]
    return replace(capture, samples=tuple(sorted(samples)))


def with_setting(capture, setting, line=0, *, steps=None):
    """Add a debug setting that is on in the whole run, or in the last `steps` steps."""
    ends = [event.end for event in capture.events if event.kind == EventKind.STEP]
    start = 0 if steps is None else ends[-steps - 1]
    event = LedgerEvent(EventKind.SETTING, setting, line, LOOP, start, ends[-1] + MS)
    return replace(capture, events=(*capture.events, event))


def with_graph_breaks(*lines, is_called=True):
    """Return a PyTorch loop with a compiled function that Dynamo splits at these lines."""
    compiled = [
        compile_("torch.compile", 5, function="step", graph_break=line, break_reason="Unsupported call")
        for line in lines
    ]
    calls = [run("compiled function", 4)] if is_called else []
    return loop(*calls, before=compiled, frameworks=TORCH)


def with_pieces(inactive, *, total=140, settings=None):
    """Return a loop in which PyTorch reserves 100 GiB of a device of `total` GiB, `inactive` GiB in unused pieces."""
    sizes = {"used_nbytes": 50, "reserved_nbytes": 100, "inactive_nbytes": inactive, "total_nbytes": total}
    device = {"framework": "torch", "device": "cuda:0"} | {name: size * GiB for name, size in sizes.items()}
    facts = {"memory": [{"steps": 40, "devices": [device]}], "settings": settings or {}}
    return loop(frameworks=TORCH_GPU, facts=facts)


def run_of(*lines):
    """Build a capture of one second without a loop: 100 samples for each (line, function, milliseconds)."""
    samples = [
        HostSample(number * 10 * MS, int(ms * MS), LOOP, line, function)
        for number in range(100)
        for line, function, ms in lines
    ]
    return replace(capture_of([], frameworks=TORCH), samples=tuple(samples))


def capture_of(events, *, lines=LINES, frameworks=None, facts=None, machine=None, untraced=(), window=None):
    return Capture(
        script="train.py",
        arguments=(),
        ended="done",
        seconds=1.0,
        machine=MACHINE | (machine or {}),
        versions={},
        window=window or Window(untraced=untraced),
        lines=lines,
        events=tuple(sorted(events, key=lambda event: event.end)),
        facts={"settings": {}, "frameworks": frameworks or TORCH_GPU} | (facts or {}),
    )


def _add(events, happened, now, numbers):
    """Add an event as often as it occurs in a step; return the time of the loop after it."""
    for _ in range(happened.times):
        now = _add_once(events, happened, now, numbers)
    return now


def _add_once(events, happened, now, numbers):
    """Add one event, and return the time of the loop; events of other threads do not delay the loop."""
    end = now + int(happened.ms * MS)
    within = now
    for part in happened.inside:
        within = _add(events, part, within, numbers)
    number = next(numbers)
    detail = {name: value(number) if callable(value) else value for name, value in happened.detail.items()}
    events.append(
        LedgerEvent(
            happened.kind, happened.api, happened.line, happened.thread, now, end, happened.nbytes, detail or None
        )
    )
    return end if happened.thread == LOOP else now

"""Synthetic captures for the report tests, with diagnoses that do not depend on the rules."""

from dataclasses import replace

import numpy as np

from forebay.doctor.diagnosis.diagnose import Diagnosis
from forebay.doctor.model.capture import Capture, Window
from forebay.doctor.model.device_records import RECORD, CopyKind, DeviceRecords, RecordKind, sort_by_start
from forebay.doctor.model.events import EventKind, LedgerEvent, Line
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.registry import view_for_rules

LAUNCH_KERNEL = 211  # CUPTI's number of cudaLaunchKernel
MS = 1_000_000  # nanoseconds
LOOP, WORKER = 140001, 140002  # thread ids
HOSTILE = '</script><img src=x onerror="document.title=1"><b>&\'{{ 7 * 7 }}'

LINES = (
    Line("/home/me/project/train.py", 31, "train", "for images, labels in loader:"),
    Line("/home/me/project/train.py", 34, "train", 'images = torch.tensor(images, device="cuda")'),
    Line("/home/me/project/train.py", 41, "train", "losses.append(loss.item())"),
    Line("/home/me/project/data/crops.py", 112, "Crops.__getitem__", "return self.crop(self.images[index])"),
    Line("/home/me/project/train.py", 39, "train", "optimizer.step()"),
)
MACHINE = {
    "cores": 16,
    "memory_nbytes": 128 << 30,
    "python": "3.12.4",
    "system": "Linux 6.8.0",
    "cpu": "AMD EPYC 9554 64-Core Processor",
}

BASIS = "the measured time of the calls that it removes"
UPLOAD = Finding(
    "repeated_upload",
    "torch.tensor uploads the same 11.4 MiB again and again",
    LINES[1],
    0.00593,
    (
        Cure(
            "convert it before the loop",
            "images = ...   # move this line before the loop",
            BASIS,
            low=0.0053,
            high=0.0059,
        ),
        Cure(
            "use upload_once in the loop",
            'images = forebay.upload_once(images, to="torch")',
            BASIS,
            low=0.005,
            high=0.0059,
        ),
    ),
    ("It runs 1.0 times per step; 99% of the uploads repeat earlier data (1 distinct array).",),
)
READ_BACK = Finding(
    "read_back",
    "Tensor.item waits for the device every step",
    LINES[2],
    0.0011,
    (
        Cure(
            "read results later, or every hundredth step",
            "readback = forebay.Readback()\n"
            "readback.put(loss, tag=step)        # in the loop: does not wait\n"
            "for result in readback.ready(): ...  # results that have arrived",
            "the measured time of the removed waits; hidden work may take their place",
            low=0.0005,
            high=0.0011,
        ),
    ),
    ("The script reads back 4 B per step and waits 1.10 ms.",),
)
INPUT = Finding(
    "input_bound",
    "The loop waits for DataLoader: Python reads rows one by one, in the process that also trains",
    LINES[3],
    0.0031,
    (Cure("use workers", "DataLoader(dataset, batch_size=256, num_workers=8)", BASIS, low=0.001, high=0.003),),
    (
        "The loader has 0 workers. The loop waits 3.10 ms per step for the next batch.",
        "Crops.__getitem__ takes 11.9 us per row.",
    ),
)


def diagnosis_of(capture, *findings, failures=()):
    return Diagnosis(view_for_rules(capture), findings, failures)


def capture_of(events, *, steps=50, lines=LINES, script="/home/me/project/train.py", untraced=(), **given):
    """Return a capture of these events. Without steps, its window has no anchor."""
    last = max((event.end for event in events), default=0)
    anchor = (EventKind.STEP.value, "optimizer.step", 4)
    window = Window(0, last, anchor if steps else None, untraced)
    facts = {"settings": {"OMP_NUM_THREADS": "8"}, "frameworks": {"torch": {"gpus": 1, "threads": 16}}}
    fields = {"ended": "done", "seconds": 12.4, "facts": facts, "versions": {"numpy": "2.3.1", "torch": "2.13.0"}}
    return Capture(
        script=script,
        arguments=("--epochs", "3"),
        machine=MACHINE,
        window=window,
        lines=lines,
        events=tuple(events),
        **fields | given,
    )


def step_events(number, *, length=11 * MS):
    """Yield the events of one step: an input wait, an upload, a read-back and the step end; a worker prepares rows."""
    start = number * length
    yield LedgerEvent("input", "DataLoader", 0, LOOP, start, start + 2 * MS, 0, {"workers": 0})
    yield LedgerEvent("prepare", "row", 3, LOOP, start + MS // 2, start + MS, 0, {"what": "row"})
    yield LedgerEvent(
        "upload", "torch.tensor", 1, LOOP, start + 2 * MS, start + 8 * MS, 12_000_000, {"dtype": "float32"}
    )
    yield LedgerEvent("prepare", "map", 3, WORKER, start + 3 * MS, start + 6 * MS, 0, {"what": "map"})
    yield LedgerEvent("download", "Tensor.item", 2, LOOP, start + 9 * MS, start + 10 * MS, 4, {"dtype": "float32"})
    yield LedgerEvent("step", "optimizer.step", 4, LOOP, start + length - 1000, start + length)


def steps_of(count, **options):
    return [event for number in range(count) for event in step_events(number, **options)]


def ordinary():
    """Return a diagnosis with one severe finding, two others, and the profiling overhead."""
    capture = capture_of(steps_of(51), untraced=(0.0109, 0.0108, 0.011, 0.0109, 0.0109))
    return diagnosis_of(capture, UPLOAD, INPUT, READ_BACK)


def cured():
    """Return the diagnosis of the same script after the cure of its main finding."""
    kept = [event for event in steps_of(51) if event.kind != "upload"]
    halved = [event._replace(start=event.start // 2, end=event.end // 2) for event in kept]
    return diagnosis_of(capture_of(halved, untraced=(0.0052, 0.0051, 0.0053, 0.0052, 0.0052)), INPUT)


def healthy():
    short = [
        event._replace(end=event.start + (event.end - event.start) // 3) if event.kind == "upload" else event
        for event in steps_of(30)
    ]
    return diagnosis_of(capture_of(short, untraced=(0.0109, 0.0108, 0.0109, 0.0109, 0.0108)))


def uncured():
    """Return a diagnosis without findings, although one line takes most of a step."""
    return diagnosis_of(capture_of(steps_of(30), untraced=(0.0109, 0.0108, 0.0109, 0.0109, 0.0108)))


def crowded():
    """Return a diagnosis of a script that failed, with more findings and notes than fit on a screen."""
    capture = capture_of(
        steps_of(51),
        ended="ValueError: Using a target size (torch.Size([64, 1])) that is different to the input size is an error",
        notes=tuple(f"torch.thing{number} is not watched: torch has no thing{number}." for number in range(6)),
    )
    return diagnosis_of(
        capture, UPLOAD, *[INPUT, READ_BACK] * 5, failures=("rule small_batch failed: KeyError: 'rows'",)
    )


def interrupted():
    return diagnosis_of(capture_of(steps_of(12), ended="interrupted"), READ_BACK)


def wide_characters():
    """Return a diagnosis with source text and titles in characters that take two columns each."""
    finding = Finding(
        "read_back",
        "每一步都等待设备完成计算然后再继续 " * 4,
        LINES[2]._replace(text="损失 = 列表 " * 30),
        0.002,
        UPLOAD.cures,
    )
    return diagnosis_of(capture_of(steps_of(12), script="/家/我/" + "训练" * 30 + ".py"), finding, READ_BACK)


def no_loop():
    return diagnosis_of(capture_of(steps_of(2)[:4], steps=0, seconds=0.42))


def _crossing(kind, api, line, start_ms, ms, nbytes=0, **detail):
    start = 3000 * MS + int(start_ms * MS)
    return LedgerEvent(kind, api, line, LOOP, start, start + int(ms * MS), nbytes, detail or None)


def few_crossings():
    """Return a diagnosis without a loop: crossings of each kind, and a conversion that stays on the host."""
    events = [
        _crossing("upload", "torch.from_numpy", 0, 0, 0.01, device="cpu", copied=False),
        _crossing("upload", "Tensor.to", 1, 1, 6, 12_000_000, device="cuda:0"),
        _crossing("build", "Module.to", 3, 8, 2, what="Module", device="cuda:0", source="cpu", moved_nbytes=98 << 20),
        _crossing("download", "bool(tensor)", 2, 11, 0.2, 1, device="cuda:0"),
        _crossing("move", "tf.device", 3, 12, 0, 4096, source="GPU:0", target="CPU:0", timed=False),
        _crossing("sync", "torch.cuda.synchronize", 4, 13, 5),
        _crossing("download", "Tensor.cpu", 2, 20, 1, 12_000_000, device="cuda:0"),
    ]
    return diagnosis_of(capture_of(events, steps=0, seconds=3.42, started=0))


def many_crossings(lines=30, uploads=400):
    """Return a diagnosis without a loop: many uploads on each line, more than a report lists one by one."""
    places = tuple(Line("/home/me/project/train.py", 10 + number, "load", "x.to(device)") for number in range(lines))
    events = [
        _crossing("upload", "Tensor.to", number // uploads, number / 400, 0.001, 4096, device="cuda:0")
        for number in range(lines * uploads)
    ]
    return diagnosis_of(capture_of(events, steps=0, seconds=3.42, started=0, lines=places))


def crossings_beside_a_loop():
    """Return a diagnosis with a loop and uploads before the loop. One line uploads before and in the loop."""
    events = [event._replace(start=event.start + 9 * MS, end=event.end + 9 * MS) for event in steps_of(30)]
    before = [
        LedgerEvent("upload", "torch.tensor", 1, LOOP, at * MS, (at + 1) * MS, 5 << 20, {"device": "cuda:0"})
        for at in range(7)
    ]
    before.append(LedgerEvent("upload", "Tensor.cuda", 3, LOOP, 7 * MS, 8 * MS, 1 << 20, {"device": "cuda:0"}))
    capture = capture_of([*before, *events], started=0, untraced=(0.0109,) * 5)
    return diagnosis_of(capture, UPLOAD)


def no_framework():
    return diagnosis_of(capture_of((), steps=0, seconds=0.1, facts={"frameworks": {}}))


def hostile():
    """Return a diagnosis in which all text from the script contains HTML and terminal control codes."""
    bad = HOSTILE + "\x1b[2J\x07"
    line = Line(f"/tmp/{HOSTILE}.py", 3, bad, bad)
    finding = Finding(bad, bad, line, 0.005, (Cure(bad, bad, bad, low=0.002, high=0.004),), (bad,))
    events = [event._replace(api=bad) if event.kind == "upload" else event for event in steps_of(20)]
    capture = capture_of(
        events,
        lines=(line,) * len(LINES),
        script=f"/tmp/{HOSTILE}.py",
        ended=bad,
        notes=(bad,),
        versions={bad: bad},
        facts={"settings": {bad: bad}, "frameworks": {bad: {bad: bad}}},
    )
    return diagnosis_of(capture, finding, failures=(bad,))


def streaming(kernels=3):
    """Return a diagnosis with ten recorded steps after the profiled ones: a copy on one stream, kernels on another."""
    events = steps_of(31)
    traced = tuple(event.end for event in events if event.kind == "step")[20:]
    capture = capture_of(events[: 21 * 6])
    window = replace(capture.window, traced=traced)
    return diagnosis_of(
        replace(capture, events=tuple(events), window=window, device=device_records(traced, kernels)), UPLOAD
    )


def device_records(edges, kernels):
    """Return the records of a copy, kernels and a host call per step. Device tracks must ignore the host call."""
    rows = []
    for edge in edges[:-1]:
        rows.append((edge + MS, edge + 2 * MS, 12_000_000, 0, RecordKind.MEMCPY, CopyKind.HOST_TO_DEVICE, 7, 1, 3))
        rows.append((edge, edge + MS, 0, 0, RecordKind.RUNTIME, LAUNCH_KERNEL, 0, 0, 0))
        first, length = edge + 3 * MS, 5 * MS // kernels
        starts = range(first, first + kernels * length, length)
        rows += [(at, at + length // 2, 0, 1, RecordKind.CONCURRENT_KERNEL, 0, 13, 0, 0) for at in starts]
    fields = ("start", "end", "nbytes", "name", "kind", "what", "stream", "source", "target")
    records = np.zeros(len(rows), RECORD)
    for field, values in zip(fields, zip(*rows, strict=True), strict=True):
        records[field] = values
    return DeviceRecords(sort_by_start(records), ("", "sgemm_128x128_nn"), 0, 26)


def short_events(count, kind="upload"):
    """Return `count` short events within one step."""
    starts = range(11 * MS, 11 * MS + count * 100, 100)
    return [LedgerEvent(kind, "call", 1, LOOP, start, start + 50) for start in starts]


def wordy():
    """Return a diagnosis with transfers on a thousand lines of 5000 characters, and a hundred findings."""
    lines = tuple(Line(f"/home/me/{number}.py", number, "f", f"x{number} = " + "y" * 5000) for number in range(1000))
    uploads = [event._replace(line=at) for at, event in enumerate(short_events(1000))]
    return diagnosis_of(capture_of([*steps_of(20), *uploads], lines=lines), *[READ_BACK] * 100)


def large(steps=4000):
    """Return a diagnosis with many steps. By default, the tracks have 20,000 events."""
    return diagnosis_of(capture_of(steps_of(steps), steps=steps), UPLOAD)

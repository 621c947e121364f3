"""The rule for loops that wait for their input.

The finding names the slowest stage. The limits are those of XProf: a wait of 5 % of a step is moderate, and 20 % is
severe. TraceML uses 10 % and 20 %.
"""

from collections.abc import Iterator
from dataclasses import replace

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import feed_framework
from forebay.doctor.analyse.gpu_gauges import computes_on_gpu
from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.model.events import FEED_API, Line
from forebay.doctor.model.formatting import format_count, format_seconds
from forebay.doctor.predict import call_changes
from forebay.doctor.predict.cure_changes import (
    feed_from_memory,
    hide_waits,
    make_less_in_python,
    prefetch_input,
    shorten_input,
)
from forebay.doctor.predict.input_costs import (
    SOURCE_ROW_SECONDS,
    contention_seconds,
    makes_cheap_rows,
    prefetch_in_thread,
    shortens_step,
)
from forebay.doctor.rules.edits import Edit
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import (
    fit_array_feed,
    fit_batch_feed,
    fit_feed_of_all_rows,
    fit_line,
    fit_workers,
    has_excerpt,
)
from forebay.doctor.rules.input_edits import map_elsewhere, workers_of_dataset
from forebay.doctor.rules.input_producers import (
    SERIAL_MAP,
    STORED_ROWS_CURE,
    WORKERS_CURES,
    InputStage,
    batches_of_epoch,
    competes_with_producer,
    count_cores,
    count_producers,
    count_workers,
    find_slow_stage,
    fits_in_memory,
    generators_of,
    is_in_background,
    loader_line,
    producer_seconds,
    reads_files,
    stream_kinds,
    worker_count,
    worker_settings,
    workers_pay,
)
from forebay.doctor.rules.input_wording import FEWER_OPERATIONS, MODERATE, longest_line, wait_evidence, wait_title
from forebay.doctor.rules.pipeline_edits import feed_of_files, feed_of_rows, map_in_parallel
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import array_feed_code, batch_rows, feed_code

__all__ = [
    "MODERATE",
    "OVERLAP_BASIS",
    "examine",
    "index_cure",
    "overlap_cures",
    "recognises",
    "stored_rows_cures",
    "worker_processes_cure",
]

INDEXED_SHARE = 0.2  # share of the wait that one gather per batch takes at most, with its random indices
STORED_FILES = (  # title and code of a cure
    "decode the files once, and store the rows",
    '# for example: np.save all decoded rows before the training, then np.load(path, mmap_mode="r")',
)
OVERLAP_BASIS = "a thread makes the next batch during the step"


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether the loop waits for input at a call site, or competes with its producer."""
    if not view.step_seconds:
        return False
    return cost_of(view, site.events) >= MODERATE * view.step_seconds or competes_with_producer(view, site)


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per call site of this rule."""
    for site in view.sites_for("input_bound"):
        wait, stage = cost_of(view, site.events), find_slow_stage(view, site)
        slowdown = sum(contention_seconds(view, site, stage.seconds)) if is_in_background(view, stage) else 0.0
        yield Finding(
            rule="input_bound",
            title=wait_title(view, site, wait, stage),
            line=stage.line or (loader_line(view, site) if site.api == "DataLoader" else site.line),
            seconds=min(view.step_seconds, wait + slowdown),
            cures=(*_cures(view, site, wait, stage),),
            evidence=(*wait_evidence(view, site, wait, stage, slowdown),),
            is_bound=slowdown > 0,
        )


def _cures(view: CaptureView, site: CallSite, wait: float, stage: InputStage) -> Iterator[Cure]:
    """Yield the cures for the stage that is slow."""
    framework = feed_framework(view, site.api)
    if site.api == FEED_API:
        yield from _feed_cures(view, site, wait, stage, framework)
    elif site.values("loader")[:1] == ["arrays"]:
        code = feed_code(view, framework, site)
        yield from overlap_cures(view, site, wait, Cure("let a feed prefetch batches of the arrays", code, ""))
    elif stage.name == "map" and framework in ("tensorflow", "keras"):
        if code := fit_line(view, site.line, lambda script, number: feed_of_files(script, number, framework)):
            yield _workers_cure(view, site, wait, "let a feed read the files", code)
        yield _workers_cure(view, site, wait, "map in parallel, and prefetch", _map_code(view, site, None))
        if not has_excerpt(view, site.line):  # an excerpt would show a map of TensorFlow, which only TensorFlow can run
            yield _workers_cure(view, site, wait, "map rows in worker processes", _process_code(site, framework))
    elif stage.name == SERIAL_MAP:
        yield _workers_cure(view, site, wait, "map in parallel, and prefetch", _map_code(view, site, stage.line))
        if not has_excerpt(view, site.line):  # only as an example, because many functions accept single rows only
            code = _MAP_CODE.replace("dataset.map", f"dataset.batch({batch_rows(site)}).map")
            yield _workers_cure(view, site, wait, "batch first, then map whole batches in parallel", code)
    elif stage.name == "batch" or stage.yields_batches:
        yield from _batch_cures(view, site, wait, stage, framework)
        yield from _less_python_cures(view, site, stage)
    elif stage.name == "generator":
        yield _whole_batches_cure(view, site, framework)
        yield _generator_cure(view, site, framework)
    elif stage.is_python:
        held, settings = generators_of(view, site), worker_settings(view, site, wait)
        code = fit_workers(view, [site.line], settings, *held) or _process_code(site, framework)
        yield _workers_cure(view, site, wait, "make rows in worker processes", code)
    else:
        yield from _loader_cures(view, site, wait, framework)


def _batch_cures(view: CaptureView, site: CallSite, wait: float, stage: InputStage, framework: str) -> Iterator[Cure]:
    """Yield the cures that let other processes or threads make whole batches."""
    is_dataset = stage.name == "batch"
    if is_dataset and (not is_in_background(view, stage) or workers_pay(view, site, stage.seconds)):
        code = _dataset_code(view, site, stage.seconds)
        yield _workers_cure(view, site, stage.seconds, "make batches in worker processes", code)
    code = fit_batch_feed(view, framework, site) or _BATCHES_CODE.format(framework)
    title = f"prefetch the batches of the {'dataset' if is_dataset else 'generator'}"
    yield from _batch_feed_cures(view, site, wait, stage, Cure(title, code, ""))


def _feed_cures(view: CaptureView, site: CallSite, wait: float, stage: InputStage, framework: str) -> Iterator[Cure]:
    """Yield a cure for a loop that already uses a feed.

    If the feed already has worker processes, its map can run on more machines. If it has none, a slow map can run in
    worker processes. For any other slow stage, `explain()` shows what the feed measured.
    """
    if stage.name != "map" and not count_workers(site):
        basis = "the feed has measured each of its stages; the cure saves at most the whole wait"
        title = "find the feed's slowest stage and shorten it"
        yield Cure(title, "print(feed.explain())", basis, hide_waits(view, site))
        return
    where = "ray" if count_workers(site) else "process"
    code = f'feed = pipeline.batch({batch_rows(site)}).map(prepare, where="{where}").feed("{framework}")'
    code += _GUARD_COMMENT if where == "process" else ""
    code = fit_line(view, site.line, lambda script, number: map_elsewhere(script, where)) or code
    if where == "ray":
        basis = "the worker processes are busy, so other machines must help; the cure saves at most the whole wait"
        yield Cure("run the map on more machines", code, basis, hide_waits(view, site))
        return
    yield _workers_cure(view, site, wait, "run the map in worker processes", code)


def _loader_cures(view: CaptureView, site: CallSite, wait: float, framework: str) -> Iterator[Cure]:
    """Yield cures for a slow loader.

    If the loader already prefetches, a prefetching thread gains nothing.
    """
    yield from stored_rows_cures(view, site, framework)
    has_few_workers = count_workers(site) < count_cores(view) and workers_pay(view, site, wait)
    takes_workers = framework != "keras" and site.api == "DataLoader" and has_few_workers
    if takes_workers:
        yield worker_processes_cure(view, site, wait)
    title = "if the data is in arrays, replace the loader by a feed"
    code = fit_array_feed(view, framework, site) or feed_code(view, framework, site)
    if count_producers(site):
        if "from_batches(" in code:  # the script shows no arrays, and a feed of the same loader has fewer producers
            code = "" if takes_workers else array_feed_code(view, framework)
        if code:
            basis = "the read speed was not measured; the cure saves at most the whole wait"
            yield Cure(title, code, basis, hide_waits(view, site))
        return
    prefetch = fit_batch_feed(view, framework, site) or _BATCHES_CODE.format(framework)
    cures = [*overlap_cures(view, site, wait, Cure("prefetch batches during the step", prefetch, ""))]
    cures += overlap_cures(view, site, wait, Cure(title, code, "")) if code != prefetch else []
    yield from cures
    if not cures and not takes_workers and site.api == "DataLoader" and not stream_kinds(view, site):
        yield index_cure(view, site)


def worker_processes_cure(view: CaptureView, site: CallSite, wait: float) -> Cure:
    """Return the cure that gives worker processes to a DataLoader."""
    settings = worker_settings(view, site, wait)
    code = fit_workers(view, (site.line, loader_line(view, site)), settings, *generators_of(view, site))
    code = code or f"loader = DataLoader(..., num_workers={settings['num_workers']}, persistent_workers=True)"
    title = WORKERS_CURES[settings["num_workers"] == str(count_cores(view))]
    return _workers_cure(view, site, wait, title, code)


def index_cure(view: CaptureView, site: CallSite) -> Cure:
    """Return the cure for small rows: one gather per batch, not one call per row.

    If the rows come from files, the cure decodes the files once.
    """
    changes = shorten_input(view, INDEXED_SHARE)
    if reads_files(view, find_slow_stage(view, site)):
        basis = "one operation gathers a batch of stored rows; random changes of rows must stay in the loop"
        return Cure(*STORED_FILES, basis, changes)
    loop = f"for rows in torch.randperm(len(data)).split({batch_rows(site)}):"
    code = f"{loop}\n    batch = data[rows]   # data: a tensor of all rows"
    basis = "one operation gathers a batch; rows that code of the script makes one by one gain nothing"
    return Cure("if the data is in tensors, index them", code, basis, changes)


def stored_rows_cures(view: CaptureView, site: CallSite, framework: str) -> Iterator[Cure]:
    """Yield the cure that makes all rows once, if epochs seem to have equal rows."""
    if not fits_in_memory(view, site):
        return
    once = format_seconds(cost_of(view, site.events) / (site.per_step or 1) * batches_of_epoch(view, site))
    comment = f"# makes all rows once ({once}), so it pays from the second epoch on; all epochs must have equal rows"
    if code := fit_feed_of_all_rows(view, framework, site, comment):
        basis = f"a feed takes the rows from arrays; making them takes about {once} and pays from the second epoch on"
        yield Cure(STORED_ROWS_CURE, code, basis, feed_from_memory(view, site))


def _map_code(view: CaptureView, site: CallSite, map_line: Line | None) -> str:
    """Return code that maps in parallel and prefetches; `map_line` is None if unknown."""

    def make_edits(code: ScriptCode, number: int) -> list[Edit]:
        return map_in_parallel(code, map_line.number if map_line else None, number)

    return fit_line(view, site.line, make_edits) or _MAP_CODE


def _dataset_code(view: CaptureView, site: CallSite, cost_of_stage: float) -> str:
    """Return code that gives worker processes to a PyDataset of Keras."""
    workers = worker_count(view, site, cost_of_stage)
    code = fit_line(view, site.line, lambda code, number: workers_of_dataset(code, number, workers))
    return code or f"model.fit(Dataset(..., workers={workers}, use_multiprocessing=True))   {_INIT_COMMENT}"


def overlap_cures(view: CaptureView, site: CallSite, wait: float, cure: Cure) -> Iterator[Cure]:
    """Yield `cure`, which replaces the input, with its changes, unless it may lengthen steps.

    A feed of arrays gathers whole batches. Any other feed makes the same rows or batches in a thread during the step.
    """
    if not computes_on_gpu(view):
        if "from_arrays(" in cure.code:
            outcomes = feed_from_memory(view, site)
        else:
            more = SOURCE_ROW_SECONDS if "from_source(" in cure.code else 0.0
            outcomes = prefetch_in_thread(view, site, wait, row_seconds=more)
            if makes_cheap_rows(view, site, wait) or not shortens_step(view, outcomes):
                return
    else:
        outcomes = prefetch_input(view, site, wait, in_worker_processes=False)
    yield replace(cure, basis=OVERLAP_BASIS, changes=outcomes)


def _batch_feed_cures(view: CaptureView, site: CallSite, wait: float, stage: InputStage, cure: Cure) -> Iterator[Cure]:
    """Yield a cure that lets a feed take ready-made batches from Python code.

    If another thread already runs this code, a feed can only hand over each batch faster.
    """
    if not is_in_background(view, stage):
        yield from overlap_cures(view, site, wait, cure)
        return
    outcomes = prefetch_input(view, site, stage.seconds, in_worker_processes=False)[0], call_changes.unchanged
    if shortens_step(view, outcomes):
        yield replace(cure, basis="a thread makes batches already; a feed may hand them over faster", changes=outcomes)


def _less_python_cures(view: CaptureView, site: CallSite, stage: InputStage) -> Iterator[Cure]:
    """Yield the cure for a thread that makes batches and competes with the loop."""
    if is_in_background(view, stage):
        title = "make a batch with fewer operations"
        code = f"# {'; '.join([*longest_line(view, stage), FEWER_OPERATIONS])}"
        if reads_files(view, stage):  # fewer operations do not decode a file faster
            title, code = STORED_FILES
        basis = "the loop then has the cores and the GIL for itself; how much less the code can do was not measured"
        changes = make_less_in_python(view, site, stage.seconds)
        yield Cure(title, code, basis, changes)


def _workers_cure(view: CaptureView, site: CallSite, wait: float, title: str, code: str) -> Cure:
    """Return a cure in which worker processes or threads make batches during the step."""
    cores = worker_count(view, site, wait)
    make = "makes" if cores == 1 else "make"
    basis = f"{format_count(cores, 'core')} {make} batches during the step; the gain is smaller if the cores are busy"
    return Cure(title, code, basis, prefetch_input(view, site, producer_seconds(view, site, wait)))


def _process_code(site: CallSite, framework: str) -> str:
    pipeline = f'fb.from_source(dataset).shuffle(seed=0).map(prepare, where="process").batch({batch_rows(site)})'
    return f'import forebay as fb\nfeed = {pipeline}.feed("{framework}"){_GUARD_COMMENT}'


def _whole_batches_cure(view: CaptureView, site: CallSite, framework: str) -> Cure:
    """Return the cure that makes whole batches in the generator."""
    rows = batch_rows(site)
    generator = f"def batches(): ...   # yields whole batches: one call for {rows} rows, not {rows} calls"
    code = f'import forebay as fb\n{generator}\nfeed = fb.from_batches(batches).feed("{framework}")   # prefetched'
    code = _rows_code(view, site, framework, in_batches=True) or code
    basis = "a thread makes batches during the step; at best, a batch takes as long as a row, and the loop never waits"
    return Cure("make whole batches, and prefetch them", code, basis, hide_waits(view, site))


def _rows_code(view: CaptureView, site: CallSite, framework: str, *, in_batches: bool) -> str:
    """Return an edit, as text, for a feed that calls the generator of the script."""

    def make_edits(code: ScriptCode, number: int) -> list[Edit]:
        return feed_of_rows(code, number, framework, in_batches=in_batches)

    return fit_line(view, site.line, make_edits)


def _generator_cure(view: CaptureView, site: CallSite, framework: str) -> Cure:
    """Return the cure that lets a feed call the generator."""
    code = f'import forebay as fb\nfeed = fb.from_generator(make).batch({batch_rows(site)}).feed("{framework}")'
    code = _rows_code(view, site, framework, in_batches=False) or code
    basis = "the cure removes the loader's overhead per row; the time of the generator remains"
    return Cure("let a feed call the same generator", code, basis, hide_waits(view, site))


_MAP_CODE = "dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)"
_GUARD_COMMENT = '   # under `if __name__ == "__main__":`, because worker processes import the script'
_INIT_COMMENT = "# its __init__ passes both to PyDataset.__init__"
_BATCHES_CODE = 'import forebay as fb\nfeed = fb.from_batches(loader).feed("{}")   # prefetched in a thread'

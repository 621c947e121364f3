"""No cure is offered that the script already has, and no cause is reported by two rules."""

from dataclasses import replace

import pytest
from tests.doctor.captures import TORCH, TORCH_GPU, batch, build, loop, prepare, sampled, upload
from tests.doctor.rules.device_faults import ADD16, PLAIN, allocating, computing, run_with_kernels, tiny
from tests.doctor.rules.test_memory_bound import ADAM, LAYOUT, step_of

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.events import EventKind, LedgerEvent
from forebay.doctor.rules import host, input_bound, launch_bound, loader, memory_bound, settings, tensor_cores, threads
from forebay.doctor.rules.registry import view_for_rules

MiB = 1 << 20


def cures(rule, capture):
    return [cure for finding in rule.examine(view_for_rules(capture)) for cure in finding.cures]


def titles(rule, capture):
    return [cure.title for cure in cures(rule, capture)]


def with_optimizer(capture, **settings_of_optimizer):
    """Return the capture with the settings that the first step records."""
    first = next(event for event in capture.events if event.kind == EventKind.STEP)
    described = first._replace(detail=settings_of_optimizer)
    return replace(capture, events=tuple(described if event is first else event for event in capture.events))


def with_compiled_calls(capture):
    calls = [
        LedgerEvent(EventKind.RUN, "compiled function", event.line, event.thread, event.start - 1, event.start)
        for event in capture.events
        if event.kind == EventKind.STEP
    ]
    return replace(capture, events=(*capture.events, *calls))


def of_keras(capture, backend, **settings):
    """Return the capture of a `fit` of Keras with this backend, and with settings of `model.compile`."""
    built = LedgerEvent(EventKind.BUILD, "Model.compile", 1, 1, -2, -1, 0, {"what": "Model"} | settings)
    fits = [event._replace(api="Model.fit") if event.kind == EventKind.STEP else event for event in capture.events]
    frameworks = {"tensorflow": {"gpus": 1}} | capture.facts["frameworks"]
    facts = capture.facts | {"keras_backend": backend, "frameworks": frameworks}
    window = replace(capture.window, anchor=("step", "Model.fit", capture.window.anchor[2]))
    return replace(capture, events=(built, *fits), facts=facts, window=window)


@pytest.mark.parametrize(
    ("settings", "codes"),
    [({"jit_compile": False}, ["model.compile(..., jit_compile=True)"]), ({"jit_compile": True}, [])],
)
def test_keras_on_pytorch_gets_no_cure_that_keras_refuses(settings, codes):
    """Keras refuses `steps_per_execution` on PyTorch, and `fit` has no place for a CUDA graph."""
    capture = of_keras(run_with_kernels(tiny(80)), "torch", **settings)
    assert [cure.code for cure in cures(launch_bound, capture)] == codes
    assert [finding.rule for finding in diagnose(capture).findings].count("launch_bound") == len(codes)


def test_the_cure_is_for_the_framework_that_computes():
    capture = run_with_kernels(tiny(80))
    both = replace(capture, facts=capture.facts | {"frameworks": {"jax": {"gpus": 1}} | TORCH_GPU})
    assert [cure.code for cure in cures(launch_bound, both)] == [cure.code for cure in cures(launch_bound, capture)]


def with_tf32(capture, is_on):
    return replace(capture, facts=capture.facts | {"frameworks": {"torch": TORCH_GPU["torch"] | {"tf32": is_on}}})


@pytest.mark.parametrize(
    ("kernel", "setting", "title"),
    [
        (LAYOUT, "channels_last", "store images with the channels last"),
        (ADAM, "fused", "update all parameters in one pass"),
    ],
)
def test_a_setting_of_the_optimizer_or_its_model_is_not_offered_again(kernel, setting, title):
    capture = step_of((kernel, 47))
    assert title in titles(memory_bound, with_optimizer(capture, **{setting: False}))
    assert title not in titles(memory_bound, with_optimizer(capture, **{setting: True}))


def test_a_compiled_model_is_not_compiled_again():
    capture = run_with_kernels(tiny(80))
    assert "compile the model" in titles(launch_bound, capture)
    assert titles(launch_bound, with_compiled_calls(capture)) == ["launch the step as one graph"]


@pytest.mark.parametrize(
    ("kernels", "has_tf32", "title"),
    [
        ((PLAIN, "add"), False, "use TF32 or 16 bits"),
        ((PLAIN, "add"), True, "use 16 bits"),
        ((PLAIN, ADD16), False, "use TF32"),
        ((PLAIN, ADD16), True, None),
    ],
)
def test_products_get_the_precision_that_is_not_in_use(kernels, has_tf32, title):
    capture = with_tf32(run_with_kernels(computing(800, 100), *kernels), has_tf32)
    found = cures(tensor_cores, capture)
    assert [cure.title for cure in found] == ([title] if title else [])
    assert all(("float32_matmul_precision" in cure.code) != has_tf32 for cure in found)


@pytest.mark.parametrize("pinned", [True, False])
def test_a_loader_that_page_locks_gets_no_cure_that_page_locks(pinned):
    copied = upload("Tensor.to", 4, line=12, nbytes=32 * MiB, device="cuda:0", pinned=False, non_blocking=True)
    capture = loop(batch(ms=0.1, line=9, workers=4, pinned=pinned), copied, frameworks=TORCH_GPU)
    assert ("let the loader page-lock its batches" in titles(loader, capture)) is not pinned
    assert {finding.rule for finding in diagnose(capture).findings} & {"loader", "pageable_upload"}


def test_emptying_the_cache_is_one_finding():
    capture = sampled(run_with_kernels(allocating(200)), (5, "torch.cuda.memory.empty_cache", 1))
    assert [finding.rule for finding in diagnose(capture).findings if finding.line.number == 5] == ["allocator"]


def test_emptying_the_cache_without_recorded_calls_is_a_finding_of_the_host():
    capture = sampled(loop(frameworks=TORCH_GPU), (5, "torch.cuda.memory.empty_cache", 1))
    assert [finding.line.number for finding in host.examine(view_for_rules(capture))] == [5]


def test_other_work_on_the_line_that_empties_the_cache_is_reported():
    lines = (5, "torch.cuda.memory.empty_cache", 1), (5, "gc.collect", 3)
    capture = sampled(run_with_kernels(allocating(200)), *lines)
    assert {finding.rule for finding in diagnose(capture).findings if finding.line.number == 5} == {"allocator", "host"}


@pytest.mark.parametrize(("microseconds", "rules"), [(200, {"allocator"}), (1, {"settings"})])
def test_a_variable_that_makes_the_loop_allocate_is_one_finding(microseconds, rules):
    capture = run_with_kernels(allocating(microseconds))
    capture = replace(capture, facts=capture.facts | {"settings": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}})
    assert {finding.rule for finding in diagnose(capture).findings} & {"allocator", "settings"} == rules
    assert bool([*settings.examine(view_for_rules(capture))]) == ("settings" in rules)


@pytest.mark.parametrize(
    ("nbytes", "milliseconds", "pays"), [(256, 1.6, False), (256, 2.5, True), (1 << 20, 1.6, True)]
)
def test_workers_are_offered_if_receiving_a_batch_costs_less_than_the_wait(nbytes, milliseconds, pays):
    waiting = batch(ms=milliseconds, line=9, workers=0, nbytes=nbytes, batch_rows=32)
    capture = loop(waiting.containing(prepare("row", milliseconds * 0.9)), frameworks=TORCH)
    (finding,) = loader.examine(view_for_rules(capture))
    assert ("use workers" in [cure.title for cure in finding.cures]) == pays
    assert any("torch.randperm(len(data)).split(32)" in cure.code for cure in finding.cures) != pays
    assert finding.title.startswith("DataLoader has no workers" if pays else "DataLoader makes small batches")


@pytest.mark.parametrize(("milliseconds", "pays"), [(6, False), (12, True)])
def test_many_workers_are_offered_for_longer_waits(milliseconds, pays):
    waiting = batch(ms=milliseconds, line=9, workers=0, nbytes=300_000, batch_rows=100)
    capture = loop(
        waiting.containing(prepare("row", milliseconds * 0.9)), frameworks=TORCH, machine={"cores": 16}, ms=24
    )
    (finding,) = loader.examine(view_for_rules(capture))
    assert any("worker" in cure.title for cure in finding.cures) == pays


def test_a_slow_loader_of_small_batches_gets_no_more_workers():
    offered = [batch(ms=1.5, line=9, workers=2, nbytes=nbytes) for nbytes in (1 << 20, 256)]
    found = [titles(input_bound, loop(waiting, frameworks=TORCH)) for waiting in offered]
    assert ["use one worker per core" in each for each in found] == [True, False]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_finding_about_a_loader_names_the_line_that_builds_it(workers):
    rows = [prepare("row", 5)] if workers == 0 else []
    waiting = batch(ms=6, line=9, workers=workers, built_at=4).containing(*rows)
    others = [build(line=4), build(line=5)]  # a loader for training, and one for validation
    (finding,) = diagnose(loop(waiting, before=others, frameworks=TORCH)).findings
    assert finding.line.number == 4
    assert finding.rule == ("input_bound" if workers else "loader")


@pytest.mark.parametrize(("frameworks", "keeps_cores"), [(TORCH, True), (TORCH_GPU, False)])
def test_one_thread_per_worker_leaves_the_cores_to_a_training_on_the_cpu(frameworks, keeps_cores):
    settings = {"settings": {"OMP_NUM_THREADS": "8"}}
    capture = loop(batch(ms=5, workers=8), frameworks=frameworks, facts=settings)
    ((cure,),) = [finding.cures for finding in threads.examine(view_for_rules(capture))]
    assert "OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 python" in cure.code
    assert ("torch.set_num_threads(8)" in cure.code) == keeps_cores

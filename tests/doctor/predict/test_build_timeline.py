"""Timelines built from captures: simulated step times equal those of the script and of the cured script."""

from dataclasses import replace

import pytest
from tests.doctor import device_rig as rig
from tests.doctor.device_rig import COPY_STREAM, OTHER, US

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.events import EventKind
from forebay.doctor.predict import call_changes, cure_changes
from forebay.doctor.predict.build_timeline import build_timeline
from forebay.doctor.predict.calibrate import calibrate
from forebay.doctor.predict.changes import prefetch_input, remove_waits_of_line
from forebay.doctor.predict.simulate import MAX_ERROR
from forebay.doctor.predict.timeline import simulate_steps, steady_step_seconds
from forebay.doctor.predict.upload_changes import overlap_copies, page_lock_copies, prefetch_uploads, remove_uploads

MB = 1_000_000


def uploads_and_reads(machine, *, uploads=True, pinned=False, stream=7, reads=True):
    if uploads:
        machine.upload(8 * MB, line=2, pinned=pinned, stream=stream)
    machine.launch(500)
    machine.launch(500)
    if reads:
        machine.read(4, line=3)
    machine.python(700)


def launch_bound(machine):
    for _ in range(50):
        machine.python(3)
        machine.launch(2)


def device_bound(machine):
    for _ in range(5):
        machine.launch(300)
    machine.read(4, line=3)


def waits_for_input(machine, *, us=2000):
    machine.wait_for_input(us, line=1)
    machine.upload(5 * MB, pinned=True)
    machine.launch(800)
    machine.synchronize()


def on_two_streams(machine):
    machine.upload(20 * MB, pinned=True, stream=COPY_STREAM)
    machine.stream_waits(7, COPY_STREAM)
    machine.launch(300)
    machine.read(4, line=3)


def by_another_thread(machine):
    machine.upload(8 * MB, line=2, thread=OTHER)
    machine.launch(600)
    machine.read(4, line=3, thread=OTHER)
    machine.python(100)


def fetches_inside_its_call(machine, *, prefetched=False):
    machine.call_fetching(8 * MB, 300, prefetched=prefetched)
    machine.python(100)


def returns_before_its_upload_ends(machine):
    machine.upload(8 * MB, line=2, early_us=10)
    machine.launch(600)
    machine.python(700)


def uploads_a_number(machine):
    """Upload a number while the device computes. The loop does not wait for the upload."""
    machine.launch(800)
    machine.upload(4, line=2)
    machine.python(900)


def launches_by_two_threads(machine):
    """Launch half of the device work in another thread. The loop waits for the result."""
    machine.launch(300)
    for _ in range(5):
        machine.python(10)
        machine.launch(60, thread=OTHER)
    machine.read(4, line=3)


def runs_like_jax(machine, *, reads=True):
    """Call a compiled function at the end of each step. The device executes it during the next step."""
    if reads:
        machine.read_by_another_thread(line=3)
    machine.upload_by_another_thread(20 * MB, ready_us=900, line=2)
    machine.call_compiled(1500)


PROGRAMS = [
    uploads_and_reads,
    launch_bound,
    device_bound,
    waits_for_input,
    on_two_streams,
    by_another_thread,
    fetches_inside_its_call,
    returns_before_its_upload_ends,
    uploads_a_number,
    launches_by_two_threads,
    runs_like_jax,
]


def simulated(program, *changes, **options):
    """Return the simulated step time of a program with these changes."""
    view = CaptureView(rig.run(program, **options))
    timeline = calibrate(view, build_timeline(view)).timeline
    for change in changes:
        timeline = change(timeline)
    return steady_step_seconds(timeline)


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_unchanged_timeline_takes_as_long_as_the_script(program):
    view = CaptureView(rig.run(program))
    assert steady_step_seconds(build_timeline(view)) == pytest.approx(rig.step_seconds(program), rel=0.01)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_timeline_without_call_records_takes_as_long_as_the_script(program):
    capture = rig.without_calls(rig.run(program))
    assert steady_step_seconds(build_timeline(CaptureView(capture))) == pytest.approx(
        rig.step_seconds(program), rel=0.03
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_recording_overhead_is_subtracted(program):
    assert simulated(program, launch_cost=5 * US) == pytest.approx(rig.step_seconds(program), rel=0.02)


def test_removing_uploads_predicts_the_script_without_uploads():
    cured = rig.step_seconds(lambda machine: uploads_and_reads(machine, uploads=False))
    assert simulated(uploads_and_reads, remove_uploads(2)) == pytest.approx(cured, rel=0.03)


def test_removing_the_read_predicts_the_script_without_the_read():
    cured = rig.step_seconds(lambda machine: uploads_and_reads(machine, reads=False))
    assert simulated(uploads_and_reads, remove_waits_of_line(3)) == pytest.approx(cured, rel=0.03)


def test_page_locking_predicts_the_script_with_page_locked_memory():
    cured = rig.step_seconds(lambda machine: uploads_and_reads(machine, pinned=True))
    assert simulated(uploads_and_reads, page_lock_copies(2, bytes_per_second=55e9)) == pytest.approx(cured, rel=0.03)


def test_combined_cures_predict_the_script_with_all_of_them():
    def program(machine):
        uploads_and_reads(machine, pinned=True, stream=COPY_STREAM, reads=False)

    changes = remove_waits_of_line(3), page_lock_copies(2, bytes_per_second=55e9), overlap_copies(2)
    assert simulated(uploads_and_reads, *changes) == pytest.approx(rig.step_seconds(program), rel=0.03)


def test_without_the_read_the_next_call_overlaps_with_the_device():
    cured = rig.step_seconds(lambda machine: runs_like_jax(machine, reads=False))
    assert simulated(runs_like_jax, remove_waits_of_line(3)) == pytest.approx(cured, rel=0.03)


def test_a_prefetched_upload_saves_more_than_the_time_of_its_copy():
    assert simulated(runs_like_jax, overlap_copies(2)) < rig.step_seconds(runs_like_jax) - 20 * MB / rig.PINNED


def test_a_compiled_call_does_not_wait_for_a_prefetched_batch():
    cured = rig.step_seconds(lambda machine: fetches_inside_its_call(machine, prefetched=True))
    prefetch = prefetch_uploads(5, bytes_per_second=55e9, producer_bytes_per_second=55e9)
    assert simulated(fetches_inside_its_call, prefetch) == pytest.approx(cured, rel=0.03)


def test_calibration_adds_host_work_that_took_less_time_in_recorded_steps():
    def program(machine):
        machine.upload(8 * MB, line=2)
        machine.launch(300)
        machine.python(500 if machine.tracing else 1200)

    model = calibrate(CaptureView(rig.run(program)), build_timeline(CaptureView(rig.run(program))))
    assert model.error <= MAX_ERROR
    assert steady_step_seconds(model.timeline) == pytest.approx(rig.step_seconds(program), rel=0.02)


def test_the_short_steps_of_a_loop_that_runs_ahead_show_the_speed_of_its_host():
    def program(machine):
        machine.python(980 if machine.tracing else 490)  # recording makes the host as slow as the device
        machine.launch(1000)
        machine.launch_on_full_queue(4 if machine.tracing else 506)

    capture = rig.run(program)
    waiting = [1e-3] * 15  # the queue of the device is full
    timed_window = replace(capture.window, untraced=(*[5e-4] * 5, *waiting))
    view = CaptureView(replace(capture, window=timed_window))
    timeline = calibrate(view, build_timeline(view)).timeline
    assert steady_step_seconds(timeline) == pytest.approx(1e-3, rel=0.02)
    assert sum(action.seconds for action in timeline.actions) / timeline.step_count == pytest.approx(5e-4, rel=0.02)


def test_the_first_step_of_a_simulated_round_waits_for_the_previous_round():
    lengths = simulate_steps(build_timeline(CaptureView(rig.run(runs_like_jax))), rounds=3)
    assert lengths[-10:] == pytest.approx([rig.step_seconds(runs_like_jax)] * 10, rel=0.01)


def test_prefetched_input_takes_the_longer_of_producer_and_step():
    short = rig.step_seconds(lambda machine: waits_for_input(machine, us=0))
    assert simulated(waits_for_input, prefetch_input(producer_seconds=1e-4)) == pytest.approx(short, rel=0.03)
    assert simulated(waits_for_input, prefetch_input(producer_seconds=2e-3)) == pytest.approx(2e-3, rel=0.03)


def outcomes_of_workers(batch_seconds):
    view = CaptureView(rig.run(waits_for_input))
    (site,) = view.sites_of(EventKind.INPUT)
    return [simulated(waits_for_input, change) for change in cure_changes.prefetch_input(view, site, batch_seconds)]


def test_workers_on_all_cores_are_less_efficient_than_one_worker():
    slow = [0.02 / share for share in cure_changes.WORKER_EFFICIENCIES]
    assert outcomes_of_workers(0.02) == pytest.approx(slow, rel=0.03)


def test_a_loop_needs_time_to_receive_a_batch_from_a_worker():
    short = rig.step_seconds(lambda machine: waits_for_input(machine, us=0))
    received = [short + seconds for seconds in cure_changes.GPU_HAND_OVER_SECONDS]
    assert outcomes_of_workers(1e-5) == pytest.approx(received, rel=0.1)


def test_a_thread_gains_nothing_for_batches_that_take_little_time():
    view = CaptureView(rig.run(lambda machine: waits_for_input(machine, us=200)))
    (site,) = view.sites_of(EventKind.INPUT)
    changes = cure_changes.prefetch_input(view, site, 2e-4, in_worker_processes=False)
    assert changes == (call_changes.unchanged,)
    assert cure_changes.prefetch_input(view, site, 6e-4, in_worker_processes=False) != changes


def test_a_synchronization_that_did_not_wait_may_wait_after_a_cure():
    def program(machine, *, us=2000):
        machine.launch(800)
        machine.wait_for_input(us, line=1)
        machine.synchronize()
        machine.python(500)

    cured = rig.step_seconds(lambda machine: program(machine, us=0))
    assert simulated(program, prefetch_input(producer_seconds=1e-4)) == pytest.approx(cured, rel=0.03)


def test_a_gpu_without_device_records_has_a_timeline_of_the_host():
    timeline = build_timeline(CaptureView(rig.replace(rig.run(device_bound), device=None)))
    assert timeline.operations == ()
    assert steady_step_seconds(timeline) == pytest.approx(rig.step_seconds(device_bound), rel=0.01)


def test_without_a_gpu_a_timeline_takes_as_long_as_the_script():
    capture = rig.replace(rig.run(device_bound, frameworks={"torch": {"gpus": 0}}), device=None)
    assert steady_step_seconds(build_timeline(CaptureView(capture))) == pytest.approx(
        rig.step_seconds(device_bound), rel=0.01
    )


@pytest.mark.slow
def test_a_long_recording_becomes_a_short_timeline():
    timeline = build_timeline(CaptureView(rig.capture_of_kernels(steps=50, kernels=2000)))
    assert timeline.step_count == 5
    assert len(timeline.operations) == 10_000

"""The terminal report: its sentences, and its layout at any width."""

import ast
from dataclasses import replace
from io import StringIO
from itertools import count
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from tests.doctor import device_rig as rig
from tests.doctor.captures import TORCH, TORCH_GPU, loop, run_of
from tests.doctor.histories import monitored, with_pauses
from tests.doctor.report import report_samples as samples
from tests.support.parsing import parse

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.events import LedgerEvent
from forebay.doctor.model.formatting import to_one_line
from forebay.doctor.report.sentences import FEW_STEPS, PHASE_SECONDS, describe_step_time
from forebay.doctor.report.terminal import ROWS, render
from forebay.doctor.report.terminal_layout import draw_bar, place_left_and_right, wrap_code, wrap_lines
from forebay.doctor.rules.finding import Cure
from forebay.doctor.rules.pauses import examine

SNAPSHOTS = Path(__file__).parent / "snapshots"
SAMPLES = ["ordinary", "crowded", "healthy", "uncured", "no_loop", "no_framework", "hostile", "interrupted"]
SAMPLES += ["few_crossings", "many_crossings", "crossings_beside_a_loop"]
PRINTED = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])).map(to_one_line)


def print_text(text, **options):
    out = StringIO()
    Console(file=out, width=80, highlight=False, emoji=False, **options).print(text)
    return out.getvalue()


@pytest.mark.parametrize("name", SAMPLES)
def test_the_report_equals_its_snapshot(name):
    text = print_text(render(getattr(samples, name)()), color_system=None)
    assert text == (SNAPSHOTS / f"{name}.txt").read_text()


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("name", SAMPLES)
def test_every_line_fits_and_none_ends_in_a_space(name, width):
    lines = render(getattr(samples, name)(), width=width).plain.splitlines()
    assert max(map(cell_len, lines)) <= max(50, min(80, width))
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize("name", SAMPLES)
def test_a_report_fits_on_one_screen(name):
    assert len(render(getattr(samples, name)()).plain.splitlines()) <= ROWS


def test_the_step_time_of_the_device_is_not_called_a_median():
    numbers = count()

    def program(machine):
        machine.upload(55_000_000, pinned=True)
        machine.launch(1000)
        machine.python(1200)
        if next(numbers) % 20 == 19:
            machine.synchronize()

    text = describe_step_time(diagnose(rig.without_calls(rig.run(program))))
    assert text.startswith("Step time 2.00 ms, as long as the device needs (median of ")
    assert "profiled steps: 1.2" in text


def test_text_of_the_script_has_no_terminal_codes():
    assert "\x1b" not in render(samples.hostile()).plain
    assert "\x07" not in render(samples.hostile()).plain


def test_the_cure_with_the_largest_gain_comes_first():
    diagnosis = samples.ordinary()
    finding = replace(
        diagnosis.main,
        cures=tuple(
            Cure(title, "a", "it helps", low=gain, high=gain)
            for title, gain in (("the lesser", 1e-4), ("the better", 2e-4))
        ),
    )
    screen = print_text(render(replace(diagnosis, findings=(finding,))))
    assert screen.index("the better") < screen.index("the lesser")


def test_color_adds_no_information():
    diagnosis = samples.ordinary()
    coloured = print_text(render(diagnosis), force_terminal=True, color_system="truecolor")
    assert "\x1b[" in coloured
    assert Text.from_ansi(coloured).plain.rstrip() == print_text(render(diagnosis), color_system=None).rstrip()


def test_wide_characters_count_as_two_columns():
    diagnosis = samples.wide_characters()
    assert max(map(cell_len, render(diagnosis).plain.splitlines())) <= 80


@given(PRINTED, st.integers(20, 90), st.integers(0, 6), st.integers(0, 6))
def test_wrapped_text_fits_and_keeps_every_word(text, width, indent, hang):
    lines = [line.plain for line in wrap_lines(Text(text), width, indent=indent, hang=hang)]
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(PRINTED, st.integers(30, 90))
def test_wrapped_code_fits_and_keeps_every_character(source, width):
    lines = [line.plain for line in wrap_code(source, width, indent=6)]
    assert all(cell_len(line) <= width for line in lines)
    kept, given = (sorted("".join(text.split())) for text in ("".join(lines), source))
    assert kept.count("#") >= given.count("#")  # each line of a wrapped comment gets a mark
    assert [sign for sign in kept if sign != "#"] == [sign for sign in given if sign != "#"]


@pytest.mark.parametrize("indentation", [0, 4, 12])
def test_every_line_of_a_wrapped_comment_is_a_comment(indentation):
    source = " " * indentation + "# makes all rows once, which takes about 315 ms; they must be equal in every epoch"
    lines = [line.plain for line in wrap_code(source, 60, indent=2)]
    assert len(lines) > 1
    assert " ".join(line.strip().removeprefix("# ") for line in lines) == source.strip().removeprefix("# ")
    assert all(line.startswith(" " * (2 + indentation) + "# ") and cell_len(line) <= 60 for line in lines)


def test_a_method_chain_in_a_long_comment_stays_a_comment():
    source = "# To load the values of the file: values = np.load('state.npz').values(), then assign them"
    lines = [line.plain for line in wrap_code(source, 60, indent=2)]
    assert len(lines) == 2
    assert all(line.startswith("  # ") for line in lines)


def test_a_long_comment_moves_above_its_line():
    source = "    total.assign_add(loss)   # total = tf.Variable(0.0) in front of the loop"
    lines = [line.plain for line in wrap_code(source, 60, indent=2)]
    assert lines == ["      # total = tf.Variable(0.0) in front of the loop", "      total.assign_add(loss)"]


@pytest.mark.parametrize("width", [50, 60, 80])
def test_a_split_chain_is_valid_python(width):
    source = 'feed = fb.from_source(dataset).shuffle(seed=0).map(prepare, where="process").batch(256).feed("torch")'
    lines = [line.plain for line in wrap_code(source, width, indent=6)]
    assert all(cell_len(line) <= width for line in lines)
    assert ast.dump(parse(dedent("\n".join(lines)))) == ast.dump(parse(source))


LOADER = """\
dl = DataLoader(SIGNSDataset(path, train_transformer), batch_size=params.batch_size, shuffle=True,
                        num_workers=1,
                        pin_memory=params.cuda, collate_fn=collate_rows, persistent_workers=True)"""
LOOP = """\
for x, y in loader:
    loss = cross_entropy(model(x), y, weights_of_the_classes, label_smoothing=0.1, reduction="mean")"""


@pytest.mark.parametrize(("source", "indentations"), [(LOADER, {0, 24}), (LOOP, {0, 4, 8})])
def test_continuation_lines_have_the_indentation_of_their_call(source, indentations):
    lines = [line.plain for line in wrap_code(source, 78, indent=6)]
    assert ast.dump(parse(dedent("\n".join(lines)))) == ast.dump(parse(source))
    assert {len(line) - len(line.lstrip()) - 6 for line in lines} == indentations


@given(PRINTED.filter(str.strip), st.integers(40, 90))
def test_the_right_text_ends_at_the_edge(text, width):
    lines = [line.plain for line in place_left_and_right(Text(text), Text("1.5 ms"), width, indent=2, hang=4)]
    assert cell_len(lines[0]) == width
    assert lines[0].endswith("  1.5 ms")
    assert all(cell_len(line) <= width for line in lines)


def test_without_a_right_text_no_space_is_left():
    assert [line.plain for line in place_left_and_right(Text("a cure"), Text(), 40, indent=2)] == ["  a cure"]


@pytest.mark.parametrize(("frameworks", "is_reported"), [(TORCH, True), (TORCH_GPU, False), ({"torch": {}}, False)])
def test_a_missing_gpu_is_reported(frameworks, is_reported):
    screen = to_one_line(render(diagnose(loop(ms=5, frameworks=frameworks))).plain)
    assert ("torch found no GPU, so these parts include the computation on the CPU." in screen) is is_reported


def test_crossings_within_the_host_are_shown_only_without_others():
    def shown(**detail):
        events = [
            LedgerEvent("upload", "torch.tensor", 1, samples.LOOP, 0, 10, 8, {"device": "cpu"}),
            LedgerEvent("upload", "Tensor.to", 2, samples.LOOP, 20, 30, 8, detail),
        ]
        return render(samples.diagnosis_of(samples.capture_of(events, steps=0))).plain

    assert "torch.tensor" not in shown(device="cuda:0")
    assert "No data left the host." in shown(device="cpu")
    assert "torch.tensor" in shown(device="cpu")


def test_the_lines_of_a_run_without_a_loop_add_up_to_the_run():
    lines = [(14, "torch.load", 5), (15, "", 2), (16, "", 1), (17, "", 0.5), (18, "", 0.5)]
    rows = render(diagnose(run_of(*lines))).plain.split("Time of the run, by line:\n")[1].splitlines()[:5]
    assert [row.split()[0] for row in rows] == ["train.py:14", "train.py:15", "train.py:16", "2", "no"]
    assert [row.split()[-1] for row in rows] == ["50%", "20%", "10%", "10%", "10%"]


def test_without_room_the_crossings_beside_a_loop_are_omitted():
    crossings, crowded = samples.crossings_beside_a_loop(), samples.crowded()
    screen = render(replace(crowded, view=crossings.view)).plain
    assert "Crossings" not in screen
    assert len(screen.splitlines()) <= ROWS


@pytest.mark.parametrize(
    ("untraced_ms", "message"),
    [
        (8, "Profiling made steps 25% slower"),
        (11, "Profiling did not make steps slower"),
        (25, "Step times vary widely: profiled steps were 60% shorter"),
    ],
)
def test_the_profiling_overhead_is_always_reported(untraced_ms, message):
    assert message in to_one_line(render(diagnose(loop(ms=10, untraced=(untraced_ms / 1e3,) * 5))).plain)


def test_few_profiled_steps_have_a_reason():
    long, short = (to_one_line(render(diagnose(loop(ms=ms, steps=15))).plain) for ms in (900, 10))
    assert "The cost of profiling was not measured. Steps are long: the doctor profiles up to 50 steps" in long
    assert "The cost of profiling was not measured: the run ended too early." in short
    timed = to_one_line(render(diagnose(loop(ms=900, steps=15, untraced=(0.9,) * 5))).plain)
    assert "). Steps are long: the doctor profiles up to 50 steps, for at most 10 seconds." in timed
    detector = StepDetector()
    assert (detector.steps, detector.seconds) == (FEW_STEPS, PHASE_SECONDS)


@pytest.mark.parametrize(("untraced_ms", "is_unreliable"), [(8, False), (6, True)])
def test_parts_are_called_unreliable_if_profiling_cost_much(untraced_ms, is_unreliable):
    text = to_one_line(render(diagnose(loop(ms=10, untraced=(untraced_ms / 1e3,) * 5))).plain)
    assert ("profiled steps, unreliable: profiling made them 67% slower:" in text) == is_unreliable


def test_code_that_is_too_long_for_the_screen_is_cut_with_the_number_of_missing_lines():
    diagnosis = samples.ordinary()
    finding = diagnosis.findings[0]
    code = "\n".join(f"call_{number}()" for number in range(25))
    screen = render(
        replace(diagnosis, findings=(replace(finding, cures=(replace(finding.cures[0], code=code),)),))
    ).plain
    assert "call_19()\n      5 more lines: use --html FILE." in screen
    assert "call_20()" not in screen


def with_rare_long_steps():
    """Return a diagnosis of usual steps of 10 ms, of which every 20th takes 210 ms: the mean is 20 ms."""
    capture = monitored(loop(frameworks=TORCH, untraced=(0.01,) * 5), with_pauses(400, 20, 200))
    (finding,) = examine(CaptureView(capture))
    cures = tuple(replace(cure, low=0.004, high=0.0045) for cure in finding.cures)
    return samples.diagnosis_of(capture, replace(finding, cures=cures))


def test_rare_long_steps_show_the_mean_step_time_beside_the_median():
    screen = to_one_line(render(with_rare_long_steps()).plain)
    assert "Every 20th step takes 210 ms instead of 10.0 ms: the loop saves files." in screen
    assert (
        "Step time 10.0 ms (median of 5 unprofiled steps). The mean of all 400 unprofiled steps is 20.0 ms." in screen
    )
    assert "The mean of all" not in to_one_line(render(diagnose(loop(frameworks=TORCH, untraced=(0.01,) * 5))).plain)


def test_costs_and_gains_of_rare_long_steps_are_those_of_the_mean_step():
    screen = to_one_line(render(with_rare_long_steps()).plain)
    assert "It costs 10.0 ms per step (50% of the run)." in screen
    assert "With the best cure a step takes 11.0 to 12.0 ms on average instead of 20.0 ms" in screen


@given(st.floats(0, 1), st.integers(1, 60))
def test_a_bar_takes_its_columns_and_is_never_empty(share, columns):
    assert cell_len(draw_bar(share, columns)) == columns
    assert draw_bar(share, columns).strip()


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("copy_not_overlapped", "Run with --verify to measure it."),
        ("eager", "--verify cannot emulate this cure: apply it"),
    ],
)
def test_a_wide_range_names_a_way_to_measure_the_cure(rule, expected):
    diagnosis = samples.ordinary()
    main = next(finding for finding in diagnosis.findings if finding.rule == "input_bound")
    cure = replace(main.cures[0], low=0.0, high=0.9 * diagnosis.view.step_seconds)
    wide = replace(diagnosis, findings=(replace(main, rule=rule, cures=(cure,)),))
    assert expected in " ".join(render(wide).plain.split())


@pytest.mark.parametrize("width", [44, 50, 60, 70, 90])
def test_a_wrapped_loop_is_valid_code(width):
    loop = "for step, (images, labels) in enumerate(rows.prefetch(AUTOTUNE)):\n    total = images + labels * weight"
    code = "\n".join(line.plain for line in wrap_code(loop, width, indent=0))
    assert ast.dump(ast.parse(code)) == ast.dump(ast.parse(loop))

"""A law of the edits in MAKERS: whichever line they edit, the script stays valid Python."""

import ast
from functools import partial
from pathlib import Path

import pytest
from tests.doctor.applied_cures import apply_cure

from forebay.core.parsing import parse_with_retries
from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.rules import (
    batch_edits,
    build_edits,
    compile_edits,
    fit_edits,
    input_edits,
    jit_edits,
    loop_edits,
    nnx_modules,
    pin_edits,
    pipeline_edits,
    read_edits,
    step_edits,
    tape_edits,
    xla_edits,
)
from forebay.doctor.rules.edits import format_edits

DOCTOR = Path(__file__).parents[1]
FAULTY = [path for path in sorted(DOCTOR.glob("scripts/*/*.py")) if not path.stem.endswith("_healthy")]
SOURCES = [path.read_text() for path in [*FAULTY, *sorted(DOCTOR.glob("situations/*.py"))]]
# Keys of MAKERS that edit none of these scripts: none uses Flax, none maps rows by arithmetic alone, and the tapes of
# TensorFlow are in functions.
UNUSED = {"cache_modules", "batch_before_map", "compile_tape"}
MAKERS = {
    "feed_of_loop": partial(batch_edits.feed_of_loop, framework="torch"),
    "feed_of_lists": partial(batch_edits.feed_of_loop, framework="torch", list_dtype="float32"),
    "build_once": build_edits.build_once,
    "call_on_batch": build_edits.call_on_batch,
    "keep_iterator": build_edits.keep_iterator,
    "pass_arrays": partial(build_edits.pass_arrays, framework="jax"),
    "pass_constants": partial(build_edits.pass_constants, framework="jax"),
    "compile_function": partial(compile_edits.compile_function, framework="tensorflow"),
    "compile_torch_model": compile_edits.compile_torch_model,
    "compile_with_xla": xla_edits.compile_with_xla,
    "compile_tape": tape_edits.compile_tape,
    "jit_statements": lambda code, number: jit_loop(code, number),
    "cache_modules": nnx_modules.cache_modules,
    "change_loader": partial(input_edits.change_loader, num_workers="2"),
    "change_loader with generators": partial(
        input_edits.change_loader, generators=["rng: Generator", "t.rng: Random"], num_workers="2"
    ),
    "copy_without_wait": input_edits.copy_without_wait,
    "feed_of_batches": partial(input_edits.feed_of_batches, framework="torch"),
    "feed_of_dataset": input_edits.feed_of_dataset,
    "feed_of_all_rows": partial(input_edits.feed_of_dataset, stored_rows="# once"),
    "feed_of_fit": partial(fit_edits.feed_of_fit, batch_rows=32),
    "workers_of_dataset": partial(input_edits.workers_of_dataset, workers=2),
    "change_arrays": partial(loop_edits.change_arrays, change="{}.astype('float32')"),
    "convert_all_elements": loop_edits.convert_all_elements,
    "convert_before_loop": partial(loop_edits.convert_before_loop, framework="tensorflow"),
    "every_nth_step": step_edits.every_nth_step,
    "keep_arrays_on_device": partial(loop_edits.keep_arrays_on_device, framework="tensorflow"),
    "pin_array": pin_edits.pin_array,
    "upload_once_in_loop": partial(loop_edits.upload_once_in_loop, framework="tensorflow"),
    "feed_of_files": partial(pipeline_edits.feed_of_files, framework="tensorflow"),
    "feed_of_rows": partial(pipeline_edits.feed_of_rows, framework="tensorflow", in_batches=True),
    "feed_of_slices": partial(pipeline_edits.feed_of_slices, framework="keras"),
    "map_in_parallel": lambda code, number: pipeline_edits.map_in_parallel(code, None, number),
    "batch_before_map": pipeline_edits.batch_before_map,
    "prefetch_dataset": pipeline_edits.prefetch_dataset,
    "check_on_device": partial(read_edits.check_on_device, framework="jax"),
    "read_few_times": partial(read_edits.read_few_times, framework="torch"),
    "receive_later": read_edits.receive_later,
}


def jit_loop(code, number):
    loops = code.loops_around(code.statement_at(number))
    return jit_edits.jit_statements(code, loops[0], {number}) if loops else []


@pytest.fixture(scope="module")
def lines():
    """Return lines in loops, in functions and with calls of `fit`, each as source, code and line number."""
    codes = [(source, ScriptCode(source)) for source in SOURCES]
    return [
        (source, code, statement.lineno)
        for source, code in codes
        for statement in code.statements
        if code.loops_around(statement) or code.function_around(statement) or ".fit(" in code.text(statement)
    ]


@pytest.mark.parametrize("maker", MAKERS)
def test_an_edited_script_is_valid_python(maker, lines):
    edited = 0
    for source, code, number in lines:
        edits = MAKERS[maker](code, number)
        edited += bool(edits)
        parse_with_retries(partial(ast.parse, apply_cure(source, format_edits(edits)) if edits else ""))
    assert edited or maker in UNUSED

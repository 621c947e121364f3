"""The code of a cure is marked as an example if it uses names that the script does not define."""

import pytest
from tests.doctor.captures import JAX, loop, run, script, upload

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.rules.examples import EXAMPLE, _unknown_names, mark_examples
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.registry import view_for_rules

SCRIPT = ("for step in range(1000):", "    batch = jnp.array(make(step))", "    state = train(state, batch)")
FEED = "import forebay as fb\nfeed = fb.from_source(rows).batch(4).feed('jax')   # rows[i] loads one row"


def in_a_loop(*lines):
    """Return the capture of a script with these lines. Its loop uploads on line 2 and computes on line 3."""
    return loop(upload("jnp.array", 1, line=2), run("jax.jit", 1, line=3), ms=10, frameworks=JAX, facts=script(*lines))


@pytest.mark.parametrize(
    ("code", "unknown"),
    [
        ("feed = fb.from_source(rows).batch(4).feed('jax')", {"rows"}),
        ("import forebay as fb\nrows = list(range(3))\nfor i in rows: print(i)", set()),
        ("def batches(n):\n    return [f(n) for f in known]", set()),
        ("OMP_NUM_THREADS=1 python train.py", set()),
        ("# for example: one call of NumPy", set()),
        ("os.environ['A'] = str(step)", {"step"}),
    ],
)
def test_names_that_the_script_does_not_define_are_found(code, unknown):
    assert _unknown_names(code, frozenset({"known"})) == unknown


def code_of(view, code):
    """Return the code of a cure for line 2, as a diagnosis shows it."""
    finding = Finding("made_in_loop", "A title", view.line(2), 1e-3, (Cure("a title", code, "a reason"),), ("It is.",))
    return mark_examples(view, finding).best_cure.code


def test_code_with_names_that_the_script_lacks_is_marked_as_an_example():
    view = view_for_rules(in_a_loop(*SCRIPT))
    assert code_of(view, FEED) == f"{EXAMPLE}\n{FEED}"
    for other in ("print(state)", "# instead of line 2:\nbatch = rows[step]", f"{EXAMPLE}\n{FEED}"):
        assert code_of(view, other) == other


def test_code_is_not_marked_if_the_capture_has_no_source():
    assert code_of(view_for_rules(in_a_loop()), FEED) == FEED


def test_a_diagnosis_marks_the_examples_of_every_rule():
    while_loop = (
        "while True:",
        "    batch = {k: jnp.array(v[rows]) for k, v in ds.items()}",
        "    train(state, batch)",
    )
    cures = [cure for finding in diagnose(in_a_loop(*while_loop)).findings for cure in finding.cures]
    assert cures
    assert all(cure.code.startswith(EXAMPLE) for cure in cures)

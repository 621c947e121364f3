"""The cure that fuses an optimizer fits the class and the arguments of the script's own optimizer."""

from dataclasses import replace

import pytest
from tests.doctor.captures import STEP_LINE
from tests.doctor.rules.test_cures_in_place import cures, with_optimizer
from tests.doctor.rules.test_memory_bound import ADAM, step_of

from forebay.doctor.rules import memory_bound

TITLE = "update all parameters in one pass"


def codes(source, **settings):
    """Return the codes of the cure for a script whose optimizer has these settings. The script begins with line 1."""
    capture = with_optimizer(step_of((ADAM, 47)), **settings)
    texts = [*source.split("\n"), *("pass" for _ in range(STEP_LINE))][:STEP_LINE]
    lines = [[number, text] for number, text in enumerate(texts, 1)]
    capture = replace(capture, facts=capture.facts | {"script": {"files": [{"file": "train.py", "lines": lines}]}})
    return [cure.code for cure in cures(memory_bound, capture) if cure.title == TITLE]


@pytest.mark.parametrize(
    ("made", "fused"),
    [
        ("torch.optim.SGD(net.parameters(), 0.1)", "torch.optim.SGD(net.parameters(), 0.1, fused=True)"),
        ("SGD(groups, lr=lr, foreach=True)", "SGD(groups, lr=lr, fused=True)"),
        ("optim.SGD(groups, lr, fused=False)", "optim.SGD(groups, lr, fused=True)"),
    ],
)
def test_the_optimizer_of_the_script_keeps_its_arguments(made, fused):
    assert codes(f"opt = {made}", optimizer="SGD", fused=False) == [f"# instead of line 1:\nopt = {fused}"]


@pytest.mark.parametrize("name", ["RMSprop", "Adagrad", "my_package.AdamW"])
def test_an_optimizer_without_a_fused_version_is_not_fused(name):
    assert codes("opt = make()", optimizer=name, fused=False) == []


@pytest.mark.parametrize("argument", ["differentiable=True", "sparse=True"])
def test_an_optimizer_with_arguments_that_exclude_a_fused_update_is_not_fused(argument):
    assert codes(f"opt = make(torch.optim.Adam, {argument})", optimizer="Adam") == []


def test_an_optimizer_that_the_script_makes_elsewhere_is_named():
    (code,) = codes("opt = configure(model)", optimizer="Adam")
    assert code.startswith("optimizer = torch.optim.Adam(..., fused=True)")
    (unknown,) = codes("opt = configure(model)")
    assert "SGD, Adam and AdamW have this argument" in unknown

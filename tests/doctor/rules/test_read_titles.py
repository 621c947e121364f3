"""The title of a cure that reads values less often says what its code does."""

import pytest
from tests.doctor.captures import JAX, download, loop, run, script

from forebay.doctor.rules import read_back
from forebay.doctor.rules.registry import view_for_rules

KEEP = "keep the values on the device, read them after the loop"
TITLES = {
    "losses.append(float(loss))": KEEP,
    "total += float(loss)": KEEP,
    "print(float(loss))": "read the value every hundredth step",
    "report(x, float(loss)); y = 1": "sum on the device, read every hundredth step",
}


@pytest.mark.parametrize("statement", TITLES)
def test_a_title_says_what_the_code_does(statement):
    facts = script("losses = []", "for step in range(1000):", "    loss = train(step)", f"    {statement}")
    read = download("float(array)", 4, line=4)
    capture = loop(run("jax.jit", 1, line=3), read, ms=10, frameworks=JAX, facts=facts)
    (finding,) = read_back.examine(view_for_rules(capture))
    cure = finding.cures[0]
    assert cure.title == TITLES[statement]
    assert ("% 100" in cure.code) == ("hundredth" in cure.title)

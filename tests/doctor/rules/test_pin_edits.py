"""Only slices of whole arrays are page-locked, and they keep their conversions."""

import pytest
from tests.doctor.rules.edited_code import code_after

from forebay.doctor.rules.pin_edits import pin_array


def test_only_slices_of_a_page_locked_array_are_page_locked():
    tensor = "x = torch.ones(9)\nfor i in r:\n    b = x[{}].to(device)"
    text = code_after(tensor.format("i : i + 4"), 3, pin_array)
    assert "x_pinned = x.pin_memory()" in text
    assert "b = x_pinned[i : i + 4].to(device, non_blocking=True)" in text
    assert code_after(tensor.format("rows"), 3, pin_array) == ""


@pytest.mark.parametrize(
    ("made", "whole"),
    [
        ("x[i:j]", "x"),
        ("x[i:j].float()", "x.float()"),
        ("torch.from_numpy(x[i:j])", "torch.from_numpy(x)"),
        ("torch.from_numpy(x[i:j]).float()", "torch.from_numpy(x).float()"),
    ],
)
def test_a_page_locked_array_keeps_the_conversions_of_its_slices(made, whole):
    text = code_after(f"for i in r:\n    b = {made}.to(device)", 2, pin_array)
    assert f"x_pinned = {whole}.pin_memory()" in text
    assert "b = x_pinned[i:j].to(device, non_blocking=True)" in text


@pytest.mark.parametrize("definition", ["x = np.ones(9)", "x = torch.ones(9)"])
def test_an_array_that_the_loop_converts_is_page_locked_with_the_dtype_of_the_tensor(definition):
    source = f"{definition}\nfor i in r:\n    b = torch.as_tensor(x[i:j], dtype=torch.float16).to(device)"
    assert "x_pinned = torch.as_tensor(x, dtype=torch.float16).pin_memory()" in code_after(source, 3, pin_array)


@pytest.mark.parametrize(
    "source",
    [
        "for i in r:\n    b = torch.as_tensor(x[i:j]).to(device)",  # may be a list
        "for i in r:\n    b = x[i:j].to(device, torch.half, True)",
        "for e in r:\n    x = load(e)\n    for i in s: b = x[i:j].to(device)",
        "for i in r:\n    b = transform(x[i:j]).to(device)",
    ],
)
def test_other_data_is_not_page_locked(source):
    assert code_after(source, source.count("\n") + 1, pin_array) == ""

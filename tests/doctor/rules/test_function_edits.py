"""Edits of loops that call a function of the script for each batch keep its names, dtypes and arguments."""

import pytest
from tests.doctor.applied_cures import apply_cure
from tests.doctor.captures import TORCH, TORCH_GPU, loop, upload
from tests.doctor.rules.edited_code import code_after

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.rules.function_edits import prefetch_call, stack_slices

TOKENS = """data = list(range(500))
def get_batch(split):
    ix = [3, 5]
    x = torch.tensor([[int(t) for t in data[i:i + 4]] for i in ix])
    y = torch.tensor([list(data[i + 1:i + 5]) for i in ix])
    return x, y
for step in range(9):
    xb, yb = get_batch("train")
    losses = train(xb, yb)
"""


def prefetched(source, number):
    code = code_after(source, number, prefetch_call)
    return apply_cure(source, code) if code else ""


def test_a_thread_calls_the_function_of_the_script():
    head = TOKENS[: TOKENS.index("for step")]
    assert prefetched(TOKENS, 4) == (
        f"{head}from concurrent.futures import ThreadPoolExecutor\nmaker = ThreadPoolExecutor(1)\n"
        'next_batch = maker.submit(get_batch, "train")\nfor step in range(9):\n'
        '    xb, yb = next_batch.result()\n    next_batch = maker.submit(get_batch, "train")\n'
        "    losses = train(xb, yb)\nmaker.shutdown()\n"
    )


def test_loop_and_function_may_call_the_same_builtins():
    assert prefetched(TOKENS.replace("train(xb, yb)", "list(train(xb, yb))"), 4)


def test_an_executor_keeps_the_name_that_the_script_gives_it():
    source = f"from concurrent.futures import ThreadPoolExecutor as Pool\n{TOKENS}"
    assert "maker = Pool(1)\n" in prefetched(source, 5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('get_batch("train")', "get_batch(step)"),  # the batch depends on the step
        ("ix = [3, 5]", "ix = [step, losses]"),
        (
            'xb, yb = get_batch("train")',
            'for _ in "ab":\n        xb, yb = get_batch("train")\n    xb, yb = get_batch(1)',
        ),
        ('xb, yb = get_batch("train")', 'xb, yb = make.get_batch("train")'),
        ("losses = train(xb, yb)", "data.append(train(xb, yb))"),  # the loop changes the data
        ("losses = train(xb, yb)", "remember()\ndef remember():\n    data.pop()"),
        ("losses = train(xb, yb)", "random.shuffle(data)"),
        ("ix = [3, 5]", "ix = train(3)"),  # the loop trains the model that makes batches
        ("return x, y", "yield x, y"),  # the call makes a generator, which makes no batch yet
        ("ix = [3, 5]", "ix = [3, 5]\n    np.take(data, ix, out=buffer)"),  # the next batch would be in the same buffer
        ("ix = [3, 5]", "ix = [3, 5]\n    buffer[:] = data[3:5]"),
        ("ix = [3, 5]", "part = buffer[3:5]\n    part += 1\n    ix = [3, 5]"),
        ("ix = [3, 5]", "ix = [3, 5]\n    file.readinto(buffer)"),
        ("ix = [3, 5]", "ix = [3, 5]\n    split[0] = 3"),  # the argument is the buffer
        ("ix = [3, 5]", "ix = [3, 5]\n    global place\n    place = 3"),
    ],
)
def test_batches_that_need_the_loop_are_not_prefetched(old, new):
    assert prefetched(TOKENS.replace(old, new), 4) == ""


def test_a_function_may_fill_arrays_of_its_own():
    assert prefetched(TOKENS.replace("ix = [3, 5]", "ix = np.empty(2, int)\n    ix[:] = 3"), 4)


@pytest.mark.parametrize(("number", "first"), [(4, "i:i + 4"), (5, "i + 1:i + 5")])
def test_slices_of_a_list_of_tokens_become_slices_of_an_array(number, first):
    text = apply_cure(TOKENS, code_after(TOKENS, number, stack_slices, "int64"))
    assert f"= torch.tensor(np.stack([data_array[{first}] for i in ix]))\n" in text
    assert 'import numpy as np\ndata_array = np.asarray(data, dtype="int64")\nfor step in range(9):\n' in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[int(t) for t in data[i:i + 4]]", "[t + 1 for t in data[i:i + 4]]"),  # computes new numbers
        ("[int(t) for t in data[i:i + 4]]", "ix[i:i + 4]"),  # a list of the function
        ("losses =", "data ="),  # the loop changes the list
        ("losses = train(xb, yb)", "data.append(train(xb, yb))"),
        ("losses = train(xb, yb)", "random.shuffle(data)"),
        (
            "for step in range(9):\n",
            "first = get_batch('test')\nfor step in range(9):\n",
        ),  # runs before the array is made
        (
            "for step in range(9):\n",
            "def estimate():\n    return get_batch('test')\nfirst = estimate()\nfor step in range(9):\n",
        ),
        ("for step in range(9):\n", "def main():\n  for step in range(9):\n"),  # the array would be local to `main`
    ],
)
def test_other_lists_stay_lists(old, new):
    assert code_after(TOKENS.replace(old, new), 4, stack_slices, "int64") == ""


def cures_of(source, line, frameworks=TORCH, **detail):
    texts = [[1 + index, text] for index, text in enumerate(source.split("\n"))]
    facts = {"script": {"files": [{"file": "train.py", "lines": texts}]}}
    capture = loop(upload("torch.tensor", 6, line=line, nbytes=1 << 20, **detail), frameworks=frameworks, facts=facts)
    (finding,) = [each for each in diagnose(capture).findings if each.rule == "conversion_in_loop"]
    return {cure.title: cure for cure in finding.cures}


ARRAYS, THREAD = "store numbers in arrays, not in Python lists", "let a thread make the next batch during the step"


def test_cures_use_only_names_of_the_script():
    cures = cures_of(TOKENS, 4, TORCH_GPU, from_dtype="list", dtype="int64")
    assert {*cures} == {ARRAYS, THREAD}
    assert 'np.asarray(data, dtype="int64")' in cures[ARRAYS].code
    assert "maker.submit(get_batch, " in cures[THREAD].code
    assert cures[THREAD].low == 0  # the thread runs Python too


def test_on_the_cpu_no_thread_converts_lists():
    assert {*cures_of(TOKENS, 4, from_dtype="list", dtype="int64")} == {ARRAYS}


def test_code_that_fits_no_line_says_that_it_is_an_example():
    source = "while True:\n    state = torch.tensor([state[0] + 1.0])\n    train(state)"
    cures = cures_of(source, 2, from_dtype="list", dtype="float32")
    assert all(cure.code.startswith("# An example: ") for cure in cures.values())

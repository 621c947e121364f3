"""What the data of a loop depends on, what the loop changes, and which names are NumPy arrays."""

import gc
from weakref import ref

import pytest

from forebay.doctor.analyse.loop_code import conversions_in, depends_on_lines, is_constant_conversion, numpy_names
from forebay.doctor.analyse.script_code import ScriptCode


def depends(source, conversion, *reads):
    code = ScriptCode(source)
    return depends_on_lines(code, code.statement_at(conversion), set(reads))


ACTING = (
    "seen = env.reset()\n"
    "while True:\n"
    "    p = policy(jnp.array(seen))\n"
    "    action = int(choose(p))\n"
    "    result, reward = env.step(action)\n"
    "    seen = result\n"
)


def test_an_observation_depends_on_the_action_before_it():
    assert depends(ACTING, 3, 4)


def test_an_observation_does_not_depend_on_an_action_that_the_environment_does_not_get():
    assert not depends(ACTING.replace("env.step(action)", "env.step(next(plan))"), 3, 4)


@pytest.mark.parametrize(
    "source",
    [
        "for x in xs:\n    loss = step(jnp.array(x))\n    print(float(loss))\n",
        "for i in range(9):\n    loss = float(step(jnp.array(xs[i])))\n",
        "loss = float(first)\nx = step(jnp.array(loss))\n",  # no loop
    ],
)
def test_batches_do_not_depend_on_losses(source):
    assert not depends(source, 2, 1 if "first" in source else 2, 3)


def is_constant(conversion, change="pass"):
    code = ScriptCode(f"for i in range(9):\n    x = {conversion}\n    {change}\n")
    (part,) = conversions_in(code.statement_at(2))
    return is_constant_conversion(part, code.tree.body[0])


@pytest.mark.parametrize(
    "change",
    [
        "w.sort()",
        "w.put(0, i)",
        "w.appendleft(i)",
        "w.popleft()",
        "np.add.at(w, i, 1)",
        "np.put_along_axis(w, i, 0, 1)",
        "np.copyto(dst=w, src=z)",
        "cv2.add(w, 1, dst=w)",
        "heapq.heappush(w, i)",
        "bisect.insort(w, i)",
    ],
)
def test_data_that_a_loop_changes_in_place_is_not_constant(change):
    assert is_constant("torch.tensor(w)")
    assert not is_constant("torch.tensor(w)", change)


@pytest.mark.parametrize(("value", "expected"), [("False", True), ("True", False), ("is_learned", False)])
def test_a_tensor_with_gradients_is_not_constant(value, expected):
    assert is_constant(f"torch.tensor(w, requires_grad={value})") == expected


def test_the_names_of_numpy_arrays_do_not_keep_the_code_alive():
    code = ScriptCode("x = np.zeros(3)")
    assert numpy_names(code) == {"x"}
    released = ref(code)
    del code
    gc.collect()
    assert released() is None

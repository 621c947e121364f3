"""Stable hashes: equal for equal functions and values, different for others."""

import ast
import collections
import dataclasses
import enum
import functools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.pipeline.stable_digest import UnstableValueError, stable_digest

SCALE = 2.0


def helper(x):
    return x * SCALE


def uses_globals(x):
    return helper(x) + math.pi + np.float32(1)


def count_down(n):
    return n if n == 0 else count_down(n - 1)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass(frozen=True)
class Config:
    size: int
    mean: float = 0.5

    def half(self):
        return self.size // 2


@dataclasses.dataclass
class Mutable:
    size: int


@dataclasses.dataclass
class Table(dict):
    size: int = 0


ENDLESS = []
ENDLESS.append(ENDLESS)


class Plain:
    def method(self, x):
        return x


def digest(value):
    return stable_digest(value, "value")


def make(source, name="f", **variables):
    """Return a function of source code, in a module that is not installed."""
    scope = {"__name__": "user_module", **variables}
    exec(source, scope)
    return scope[name]


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda children: st.lists(children) | st.tuples(children, children) | st.dictionaries(st.text(), children),
    max_leaves=8,
)


@given(one=plain_values, other=plain_values)
def test_plain_values_have_equal_hashes_if_they_are_equal(one, other):
    assert (digest(one) == digest(other)) == (repr(one) == repr(other))


def test_arrays_are_hashed_with_dtype_shape_and_bytes():
    arrays = [np.arange(4), np.arange(4).reshape(2, 2), np.arange(4.0), np.arange(4)[::-1], np.int64(3), np.zeros(0)]
    assert len({digest(array) for array in arrays}) == len(arrays)
    assert digest(np.arange(8)[::2]) == digest(np.arange(8)[::2].copy())


@pytest.mark.parametrize(
    "source",
    [
        "def f(x): return x + 2",
        "def f(x): return x - 1",
        "def f(x, y=1): return x + 1",
        "def f(x, *, y=1): return x + 1",
        "def f(x): return (lambda y: y + 3)(x) + 1",
        "def f(x): return x in {1, 2}",
        "def f(x): return K",
        "def f(x): return g(x)",
        "def f(x):\n    import json\n    return x + 1",
    ],
)
def test_every_change_of_a_function_changes_its_hash(source):
    base = make("def f(x): return x + 1", K=1, g=helper)
    assert digest(make(source, K=1, g=helper)) != digest(base)


def test_names_of_files_and_lines_do_not_change_the_hash():
    assert digest(make("def f(x): return x + 1")) == digest(make("\n\n# comment\ndef f(x):\n    return x + 1"))


def test_a_global_variable_is_part_of_the_hash():
    source = "def f(x): return x * K"
    assert digest(make(source, K=1)) == digest(make(source, K=1, other=5))
    assert digest(make(source, K=1)) != digest(make(source, K=2))
    assert digest(make(source, K=np.arange(3))) != digest(make(source, K=np.arange(4)))


def test_a_function_that_is_called_is_part_of_the_hash():
    source = "def f(x): return g(x)"
    assert digest(make(source, g=make("def f(x): return 1"))) != digest(make(source, g=make("def f(x): return 2")))


@pytest.mark.parametrize(
    ("source", "package", "module"),
    [
        ("def f(x):\n    from .json import load\n    return load(x)", "user_package", "user_package.json"),
        ("def f(x):\n    from . import json\n    return json.load(x)", "user_package", "user_package"),
        ("def f(x):\n    from ..json import load\n    return load(x)", "user_package", "..json"),
        ("def f(x):\n    from .json import load\n    return load(x)", None, ".json"),
    ],
)
def test_a_relative_import_is_not_mistaken_for_an_installed_package(source, package, module):
    with pytest.raises(UnstableValueError, match=f"it imports {module!r}, which is not an installed package"):
        digest(make(source, __package__=package))


def test_a_function_of_an_installed_package_may_import_relative_modules():
    function = make("def f(x):\n    from .decoder import scanstring\n    return x", __package__="json")
    assert len(digest(function)) == 64


def test_an_attribute_with_the_name_of_a_global_variable_is_not_that_variable():
    assert digest(make("def f(x): return x.data", data=object())) == digest(make("def f(x): return x.data"))


def test_only_the_attributes_that_the_code_reads_count_of_a_module_of_the_user():
    module = type(sys)("user_helpers")
    module.size, module.other = 1, object()
    function = make("def f(x): return x + helpers.size", helpers=module)
    first = digest(function)
    module.size = 2
    assert digest(function) != first
    with pytest.raises(UnstableValueError, match="'user_helpers', which is not an installed package"):
        digest(make("def f(x): return vars(helpers)", helpers=module))


@pytest.mark.parametrize(
    "value",
    [
        np.sqrt,
        np.clip,
        np.linalg.norm,
        math.sqrt,
        len,
        uses_globals,
        count_down,
        functools.partial(helper, 1),
        functools.lru_cache(helper),
        Color.RED,
        Config(3),
        Config(3).half,
        Config,
        Plain,
        Path("a/b"),
        np.dtype("float32"),
        slice(1, 2),
        range(3),
        {1, 2},
        lambda row: row[..., 0],
    ],
)
def test_values_with_a_stable_hash(value):
    assert digest(value) == digest(value)


def own_method(factor):
    @dataclasses.dataclass
    class Scaled:
        size: int

        def __init__(self, size):
            self.size = size * factor

    return Scaled


def own_metaclass(factor):
    class Calls(type):
        def __call__(cls):
            return factor

    return Calls("Made", (), {})


def own_attribute(factor):
    config = Mutable(1)
    config.factor = factor
    return config


@pytest.mark.parametrize(
    "make_value", [own_method, own_metaclass, own_attribute, lambda factor: collections.defaultdict(lambda: factor)]
)
def test_methods_and_attributes_beside_the_fields_are_part_of_the_hash(make_value):
    assert digest(make_value(1)) == digest(make_value(1))
    assert digest(make_value(1)) != digest(make_value(2))


def test_long_numbers_and_overlapping_fields_are_hashed():
    overlapping = np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2]})
    assert digest(10**5000) != digest(10**5000 + 1)
    assert digest(np.zeros(2, overlapping)) != digest(np.zeros(2, "i4"))


def test_methods_of_two_installed_classes_have_different_hashes():
    visits = (ast.NodeVisitor.generic_visit, ast.NodeTransformer.generic_visit)
    assert stable_digest(visits[0], "function") != stable_digest(visits[1], "function")


def test_different_objects_have_different_hashes():
    values = [Color.RED, Color.BLUE, Config(3), Config(4), Config(3).half, np.sqrt, np.cbrt, Plain, Config]
    assert len({digest(value) for value in values}) == len(values)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Plain(), "an object of the class"),
        (Plain().method, "an object of the class"),
        ([].append, "an object of the class builtins.builtin_function_or_method"),
        (object(), "class builtins.object"),
        (np.array([None]), "an array of Python objects"),
        (np.random.default_rng(), "an object of the class numpy.random"),
        (np.broadcast_to(np.float64(0), (1 << 28,)), "an array of 2.0 GiB; the limit is 256.0 MiB"),
        (iter([1]), "class builtins.list_iterator"),
        (np.ma.array([1, 2], mask=[True, False]), "MaskedArray"),
        (Table(), "Table"),
        (ENDLESS, "contains itself"),
    ],
)
def test_the_error_names_values_without_a_stable_hash(value, name):
    with pytest.raises(UnstableValueError, match=name):
        digest(value)


def test_the_error_names_the_variable():
    model = Plain()
    with pytest.raises(UnstableValueError, match=r"the variable 'model' \(an object of the class .*Plain\)"):
        digest(lambda row: model.method(row))
    with pytest.raises(UnstableValueError, match="the global variable 'net'"):
        digest(make("def f(x): return net(x)", net=Plain()))
    with pytest.raises(UnstableValueError, match="a default"):
        digest(make("def f(x, y=net): return x", net=Plain()))


@pytest.mark.slow
def test_the_hash_is_equal_in_another_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\n"
        "from forebay.pipeline.stable_digest import stable_digest\n"
        "K = {'a': 1, 'b': (2, 3)}\n"
        "def f(x, y='z'):\n"
        "    return x in {'p', 'q', 'r'} or K['a'] + np.sqrt(x) + len(y)\n"
        "print(stable_digest(f, 'f'))\n"
    )
    runs = [subprocess.run([sys.executable, script], capture_output=True, text=True, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout.strip()) == 64

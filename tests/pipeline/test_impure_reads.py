"""Functions whose results differ between calls have no stable hash.

A key cannot contain all values that such a function reads.
"""

# ruff: noqa: A006, ICN001, PTH118, PTH123, PTH208, SIM112, SIM115 - the functions stand for code of users

import datetime
import os
import random
import secrets
import time
import uuid
from datetime import datetime as moment
from os import environ, getenv
from random import randint
from time import time as now

import numpy as np
import pytest
from numpy.random import rand
from tests.pipeline.row_pipelines import TEN

from forebay.errors import PipelineError
from forebay.pipeline.impure_reads import find_impure_read

draws = np.random


def imports_a_module(row):
    import random

    return random.random()


def imports_a_member(row):
    from random import random

    return random()


def imports_a_submodule(row):
    import numpy.random as numbers

    return numbers.rand()


def imports_a_dotted_name(row):
    import numpy.random

    return numpy.random.rand()


def imports_a_package_with_its_submodule(row):
    import os.path

    return os.urandom(3)


def imports_a_member_and_assigns(row):
    from random import Random

    value = Random(3)
    return value()


def with_a_closure():
    import numpy as numbers

    return lambda row: numbers.random.normal(row)


@pytest.mark.parametrize(
    "function",
    [
        imports_a_module,
        imports_a_member,
        imports_a_submodule,
        imports_a_dotted_name,
        imports_a_package_with_its_submodule,
        with_a_closure(),
        lambda row: np.random.seed(3),
        lambda row: draws.rand(),
        lambda row: rand(),
        lambda row: randint(0, 2),
        lambda row: random.random(),
        lambda row: [np.random.rand() for _ in range(3)],
        lambda row: np.random.default_rng().random(),
        lambda row: np.random.default_rng(None).random(),
        lambda row: np.random.default_rng(seed=None).random(),
        lambda row: random.Random(None).random(),
        lambda row: np.random.Generator(np.random.PCG64()).random(),
        lambda row: np.random.Generator(np.random.PCG64DXSM()).random(),
        lambda row: np.random.RandomState(np.random.MT19937()).rand(),
        lambda row: np.random.Philox().random_raw(),
        lambda row: np.random.SFC64().random_raw(),
        lambda row: np.random.SeedSequence().generate_state(1),
        lambda row: random.Random().random(),
        lambda row: uuid.uuid4(),
        lambda row: secrets.token_bytes(3),
        lambda row: os.urandom(3),
    ],
)
def test_random_numbers_without_a_seed_are_found(function):
    assert "which draws random numbers; draw them from the parameter `rng`" in find_impure_read(function)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda row: now(), "it uses 'now', which depends on the time"),
        (lambda row: time.perf_counter(), "it uses 'time.perf_counter', which depends on the time"),
        (lambda row: moment.now(), "it uses 'moment.now', which depends on the time"),
        (lambda row: datetime.datetime.now(), "it uses 'datetime.datetime.now', which depends on the time"),
        (lambda row: datetime.date.today(), "it uses 'datetime.date.today', which depends on the time"),
        (lambda row: getenv("a"), "it uses 'getenv', which depends on the process"),
        (lambda row: environ["a"], "it uses 'environ', which depends on the process"),
        (lambda row: os.environ.get("a"), "it uses 'os.environ.get', which depends on the process"),
        (lambda row: open("a").read(), "it uses 'open', which reads files"),
        (lambda row: np.load("a"), "it uses 'np.load', which reads files"),
        (lambda row: os.listdir("a"), "it uses 'os.listdir', which reads files"),
    ],
)
def test_the_reason_names_what_a_function_reads_besides_the_row(function, reason):
    assert find_impure_read(function) == reason


@pytest.mark.parametrize(
    "function",
    [
        imports_a_member_and_assigns,
        lambda row: np.random.default_rng(int(row)).random(),
        lambda row: np.random.default_rng(seed=3).random(),
        lambda row: np.random.default_rng((None, 3)[1]).random(),
        lambda row: np.random.Generator(np.random.PCG64(1)).random(),
        lambda row: random.Random(3).random(),
        lambda random: random.random(),
        lambda row, open=abs: open(row),
        lambda row, time=None: [time for _ in range(3)],
        lambda row: row.random.open(),
        lambda row: os.path.join("a", "b"),
        lambda row: datetime.datetime(2026, 1, 1),
        lambda row: np.linalg.norm(np.sqrt(row)),
    ],
)
def test_seeded_generators_arguments_and_pure_functions_are_accepted(function):
    assert find_impure_read(function) is None


def test_a_cache_on_disk_refuses_a_function_with_an_impure_read_without_a_version(tmp_path):
    pipeline = TEN.map(lambda row: row + np.random.rand())
    with pytest.raises(PipelineError, match=r"none for map, .*lambda.*it uses 'np.random.rand'.*version='1'"):
        pipeline.cache(tmp_path)
    pipeline.cache(tmp_path, version="1")
    pipeline.cache("1MB")

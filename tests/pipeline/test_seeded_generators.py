"""Functions with random generators of PyTorch.

A function has a hash if it creates and seeds its generator itself.
"""

import types

import numpy as np
import pytest
from tests.pipeline.row_pipelines import TEN

from forebay.errors import PipelineError
from forebay.pipeline.impure_reads import find_impure_read


class Generator:
    """A stand-in for the class of PyTorch, because these tests do not import PyTorch."""

    __module__ = "torch"

    def __init__(self, device="cpu"):
        self.state = 0

    def manual_seed(self, seed):
        self.state = seed
        return self

    def seed(self):
        return 0


def draw(count, *, dtype=None, generator=None):
    return np.random.default_rng(generator.state).permutation(count)


torch = types.ModuleType("torch")
torch.Generator, torch.randperm, torch.rand, torch.int64 = Generator, draw, draw, np.int64
torch.initial_seed = lambda: 0
SHARED = Generator().manual_seed(3)


def seeded_in_one_expression(row):
    generator = torch.Generator().manual_seed(int(row))
    return torch.randperm(4, generator=generator)


def seeded_in_the_next_statement(row):
    count = 4
    generator = torch.Generator("cpu")
    generator.manual_seed(3)
    return torch.randperm(count, generator=generator)[:2] + torch.rand(2, generator=generator, dtype=torch.int64)


def seeded_in_the_argument(row):
    return torch.randperm(4, generator=torch.Generator(device="cpu").manual_seed(abs(int(row))), dtype=torch.int64)


def imported(row):
    from numpy import sqrt

    generator = torch.Generator().manual_seed(1)
    return torch.rand(int(sqrt(row)), generator=generator)


@pytest.mark.parametrize(
    "function",
    [seeded_in_one_expression, seeded_in_the_next_statement, seeded_in_the_argument, imported],
)
def test_a_generator_that_the_function_creates_and_seeds_is_accepted(function):
    assert find_impure_read(function) is None


def without_a_seed(row):
    generator = torch.Generator()
    return torch.randperm(4, generator=generator)


def seeded_again_at_random(row):
    generator = torch.Generator().manual_seed(1)
    generator.seed()
    return torch.randperm(4, generator=generator)


def seeded_again_by_another_name(row):
    generator = torch.Generator().manual_seed(1)
    other = generator
    other.seed()
    return torch.randperm(4, generator=generator)


def passed_to_another_function(row):
    generator = torch.Generator().manual_seed(1)
    getattr(generator, "seed")()  # noqa: B009
    return torch.randperm(4, generator=generator)


def with_the_state_of_another(row):
    generator = torch.Generator().manual_seed(1)
    generator.graphsafe_set_state(SHARED)
    return torch.randperm(4, generator=generator)


def sometimes_another(row):
    generator = torch.Generator().manual_seed(1)
    if row:
        generator = SHARED
    return torch.randperm(4, generator=generator)


def of_a_loop(row):
    for generator in [SHARED]:
        result = torch.rand(3, generator=generator)
    return result


def of_an_outer_function(row):
    generator = torch.Generator().manual_seed(1)
    return (lambda: torch.rand(3, generator=generator))()


def of_a_parameter(row, generator=SHARED):
    return torch.randperm(4, generator=generator)


def of_a_parameter_that_is_seeded(row, *, generator=SHARED):
    generator.manual_seed(3)
    return torch.randperm(4, generator=generator)


@pytest.mark.parametrize(
    "function",
    [
        without_a_seed,
        seeded_again_at_random,
        seeded_again_by_another_name,
        passed_to_another_function,
        with_the_state_of_another,
        sometimes_another,
        of_a_loop,
        of_an_outer_function,
        of_a_parameter,
        of_a_parameter_that_is_seeded,
        lambda row: torch.randperm(4, generator=SHARED),
        lambda row: torch.randperm(4, generator=None),
        lambda row: torch.randperm(4, generator=torch.Generator()),
    ],
)
def test_another_generator_is_refused_with_what_to_write(function):
    reason = "draws random numbers from a generator that this function does not create and seed; write `generator = "
    assert reason in find_impure_read(function)


def seeded_but_not_for_every_call(row):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(3, generator=generator) + torch.rand(3)


def with_a_dict(row):
    options = {"generator": torch.Generator().manual_seed(1)}
    return torch.rand(3, **options)


def with_another_name(row):
    function = torch.rand
    return function(3)


@pytest.mark.parametrize(
    "function",
    [
        seeded_but_not_for_every_call,
        with_a_dict,
        with_another_name,
        lambda row: torch.randperm(4),
        lambda row: list(map(torch.rand, [3])),
        lambda row: torch.rand(3, generator=SHARED if row else torch.Generator().manual_seed(1)),
    ],
)
def test_calls_without_a_recognized_generator_are_refused(function):
    assert "which draws random numbers; draw them from the parameter `rng`" in find_impure_read(function)


def test_the_seed_of_the_process_is_refused():
    expected = "it uses 'torch.initial_seed', which depends on the process"
    assert find_impure_read(lambda row: torch.Generator().manual_seed(torch.initial_seed())) == expected


def test_a_cache_on_disk_takes_a_function_with_a_seeded_generator_without_a_version(tmp_path):
    TEN.map(seeded_in_one_expression).cache(tmp_path)
    with pytest.raises(PipelineError, match=r"'torch.randperm', which draws random numbers from a generator that this"):
        TEN.map(of_a_parameter).cache(tmp_path)

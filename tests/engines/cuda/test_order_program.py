"""Order programs: the instructions that are assembled from the steps of an order."""

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.support.device_orders import device_orders
from tests.support.fake_cuda import kernels

from forebay.engines.cuda.driver import read_kernels
from forebay.engines.cuda.order_program import INSTRUCTION_WORDS, PROGRAM_NBYTES, Operation, assemble
from forebay.order.device_steps import count_steps


class AnyMemory:
    """A GPU that lets kernels read all memory of this process."""

    def check_device(self, pointers, nbytes, what):
        pass


def kernel_source():
    return read_kernels("gather.cu").decode()


def test_operations_have_the_numbers_of_the_kernel():
    body = re.search(r"enum Operation \{(.*?)\};", kernel_source(), re.DOTALL)[1]
    assert re.findall(r"(\w+) = (\d+)", body) == [(operation.name, str(operation.value)) for operation in Operation]


def test_instructions_have_the_size_that_the_kernel_reads():
    assert int(re.search(r"const uint INSTRUCTION_WORDS = (\d+);", kernel_source())[1]) == INSTRUCTION_WORDS


@given(order=device_orders, epoch=st.integers(0, 1000), data=st.data())
def test_a_program_computes_the_rows_of_its_order(order, epoch, data):
    steps = order.device_steps(epoch)
    program = assemble(steps, lambda table: table.ctypes.data)
    positions = np.array(data.draw(st.lists(st.integers(0, order.length - 1), min_size=1, max_size=30)))
    found = kernels.run_program(AnyMemory(), program.ctypes.data, 0, positions.astype(np.uint64))
    assert found.tolist() == order.rows(epoch, positions).tolist()


@given(order=device_orders)
def test_a_program_has_at_most_as_many_instructions_as_count_steps_returns(order):
    steps = order.device_steps(0)
    program = assemble(steps, lambda table: 0)
    assert program.shape == (len(program), INSTRUCTION_WORDS)
    assert len(program) <= count_steps(steps)
    assert program.nbytes <= PROGRAM_NBYTES

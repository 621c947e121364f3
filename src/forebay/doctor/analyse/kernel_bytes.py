"""Estimates of the bytes that a kernel reads and writes, from its name.

The names of some kernels show how many array elements ("numbers") a thread handles, and how many arrays it reads and
writes. So the estimate needs no hardware counters. It is an upper limit: the last block may be partly empty, and one
array may be smaller than the rest. The names of reductions, of normalisations and of TensorFlow's kernels show neither
number, so these kernels have no estimate. Kernels with an estimate:

    PyTorch  vectorized_elementwise_kernel, unrolled_elementwise_kernel, elementwise_kernel (ATen/native/cuda);
             multi_tensor_apply_kernel, whose blocks handle CHUNK_NUMBERS numbers each
    CuPy     cupy_add__float32_float32_float32: one number of each array per thread
"""

import re
from functools import lru_cache

__all__ = ["arrays_of_foreach", "bytes_per_block"]

CHUNK_NUMBERS = 65_536  # numbers of each array that a block of multi_tensor_apply_kernel handles
# Numbers of each array that a thread of vectorized_elementwise_kernel handles since VECTORIZED_SINCE. A thread handles
# twice as many numbers of one byte.
NUMBERS_PER_THREAD = 8
VECTORIZED_SINCE = (2, 7)  # version of PyTorch; for earlier versions, this kernel has no estimate
THREADS = 128  # threads per block of PyTorch's elementwise kernels

# Patterns of mangled C++ names. The groups are template arguments.
# Groups: arrays.
_VECTORIZED = re.compile(r"vectorized_elementwise_kernelILi\d+E.*St5arrayIPcLm(\d+)E")
# Groups: arrays, numbers per thread.
_UNROLLED = re.compile(r"unrolled_elementwise_kernelI.*St5arrayIPcLm(\d+)E+Li(\d+)E")
# Groups: threads per block, numbers per thread.
_STRIDED = re.compile(r"(?<![a-z]_)elementwise_kernelILi(\d+)ELi(\d+)E")
# Groups: lists of tensors.
_MULTI_TENSOR = re.compile(r"multi_tensor_apply_kernelI.*TensorList(?:ScalarList)?MetadataI[a-z]?Li(\d+)E")
# Groups: lists of tensors, lists that the functor reads.
_MULTI_TENSOR_ARGUMENTS = re.compile(r"FunctorI\w+?Li(\d+)ELi(\d+)ELi\d+E")
_LAMBDA = re.compile(r"EUl([a-zN].*?)E_")
_FUNCTOR_TYPES = re.compile(r"(?:Functor(?:_\w+?|OnSelf_\w+?)?|FunctorOnSelf_\w+?)I([a-z]+|N3c10\d+\w+?E)")
_CUPY = re.compile(r"^cupy_\w+?__(\w+)$")
_CUPY_NUMBERS = {"bool": 1} | {  # dtype -> bytes per number
    f"{family}{bits}": bits // 8
    for family, widths in (("float", (16, 32, 64)), ("int", (8, 16, 32, 64)), ("uint", (8, 16, 32, 64)))
    for bits in widths
}
# Letter of a number type in a mangled C++ name (Itanium ABI) -> bytes per number.
_NBYTES_BY_LETTER = {"f": 4, "d": 8, "i": 4, "j": 4, "l": 8, "m": 8, "x": 8, "s": 2, "t": 2, "h": 1, "a": 1, "b": 1}


@lru_cache(maxsize=4096)
def bytes_per_block(name: str, threads: int, torch_version: tuple[int, int] = VECTORIZED_SINCE) -> int | None:
    """Return the bytes that a full block of a kernel reads and writes, or None.

    None means that the name does not show them. `threads` is the number of threads per block.
    """
    cupy = _CUPY.search(name)
    if cupy:  # a type without a number of bits, such as `float`, is that of a scalar, which needs no bytes
        return threads * sum(_CUPY_NUMBERS.get(number, 0) for number in cupy[1].split("_")) or None
    numbers_and_arrays = _torch_numbers(name, torch_version)
    if numbers_and_arrays is None:
        return None
    numbers, arrays = numbers_and_arrays
    return numbers * arrays * _number_nbytes(name)


def _torch_numbers(name: str, torch_version: tuple[int, int]) -> tuple[int, int] | None:
    """Return how many numbers of each array a block handles, and the number of arrays.

    An array that the block reads and writes counts twice. Return None if the name does not show both.
    """
    if match := _VECTORIZED.search(name):
        per_thread = 2 * NUMBERS_PER_THREAD if _number_nbytes(name) == 1 else NUMBERS_PER_THREAD
        return (THREADS * per_thread, int(match[1])) if torch_version >= VECTORIZED_SINCE else None
    if match := _UNROLLED.search(name):
        return THREADS * int(match[2]), int(match[1])
    if match := _STRIDED.search(name):
        arrays = _count_arrays(name)
        return (int(match[1]) * int(match[2]), arrays) if arrays else None
    arrays = arrays_of_foreach(name)
    return (CHUNK_NUMBERS, arrays) if arrays else None


def arrays_of_foreach(name: str) -> int:
    """Return how many arrays a foreach kernel of PyTorch reads, plus how many it writes.

    A foreach kernel handles lists of tensors. The result is the number for one position in these lists.
    Return 0 for other kernels.
    """
    match = _MULTI_TENSOR.search(name)
    if match is None:
        return 0
    # Template arguments of the functor: lists of tensors, lists that it reads, index of the list of the results.
    arguments = _MULTI_TENSOR_ARGUMENTS.search(name)
    # Without these arguments, assume that the kernel reads all arrays and writes all but one.
    return int(arguments[2]) + 1 if arguments else 2 * int(match[1]) - 1


def _count_arrays(name: str) -> int:
    """Return the number of arguments and results of a functor; 0 if unknown."""
    if re.search(r"[AB]UnaryFunctor|CUDAFunctorOnSelf", name):
        return 2
    if re.search(r"BinaryFunctor|CUDAFunctor_", name):
        return 3
    match = _LAMBDA.search(name)
    return 1 + len(re.findall(r"N3c10\d+\w+?E|[a-z]", match[1])) if match else 0


def _number_nbytes(name: str) -> int:
    """Return the bytes per number; 4 if the type is unknown, as for float32."""
    if "BFloat16" in name or "4Half" in name:
        return 2
    for pattern in (_FUNCTOR_TYPES, _LAMBDA):
        match = pattern.search(name)
        if match and match[1][0] in _NBYTES_BY_LETTER:
            return _NBYTES_BY_LETTER[match[1][0]]
    return 4

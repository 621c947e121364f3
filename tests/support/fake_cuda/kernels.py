"""The kernels of `gather.cu`, in NumPy. They check every address that they read or write."""

import ctypes

import numpy as np

__all__ = ["KERNELS"]


def _array(machine, pointer, count, dtype):
    """Return an array in device memory."""
    nbytes = count * np.dtype(dtype).itemsize
    machine.check_device([pointer], [nbytes], "a kernel works")
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(pointer), dtype)


def _rows(machine, job):
    return _array(machine, job.rows, job.count, np.int64 if job.needs_int64 else np.int32).astype(np.int64)


def _extents(machine, job):
    """Return the first row, base address and stride of each extent."""
    return _array(machine, job.extents, 3 * job.extent_count, np.int64).reshape(-1, 3)


def _sources(machine, job):
    """Return the address of each row."""
    table = _extents(machine, job)
    rows = _rows(machine, job)
    which = np.maximum(np.searchsorted(table[:, 0], rows, side="right") - 1, 0)
    return table[which, 1] + rows * table[which, 2]


def gather_unaligned(machine, job):
    sources = _sources(machine, job)
    turns = _array(machine, job.order, job.count, np.uint32) if job.order else np.arange(job.count)
    batch, row = np.divmod(np.arange(job.count), job.batch_rows)
    targets = job.out + batch * job.batch_stride + row * job.row_nbytes
    machine.check_read(sources, np.full(job.count, job.row_nbytes))
    machine.check_device(targets, np.full(job.count, job.row_nbytes), "a kernel writes")
    for start in range(0, job.pieces * job.piece_nbytes, job.piece_nbytes):
        nbytes = min(job.piece_nbytes, job.row_nbytes - start)
        for i in turns.tolist():
            ctypes.memmove(int(targets[i]) + start, int(sources[i]) + start, nbytes)


def gather_aligned(machine, job):
    table = _extents(machine, job)
    wide = not (table[:, 1:] % 16).any() and not (job.out | job.batch_stride | job.row_nbytes | job.piece_nbytes) % 16
    if not wide:
        raise machine.fault("a kernel got rows that cannot be read 16 bytes at a time")
    gather_unaligned(machine, job)


def gather_bulk(machine, job):
    if machine.capability < (9, 0) or job.piece_nbytes > 8192:
        raise machine.fault("bulk copies on a device without them, or of more bytes than a stage has")
    machine.check_device(_sources(machine, job), np.full(job.count, job.row_nbytes), "a bulk copy reads")
    gather_aligned(machine, job)


def narrow_numbers(machine, job):
    wide = _array(machine, job.source, job.count, np.float64 if job.is_float else np.int64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32 if job.is_float else np.int32)
    for start in range(0, job.count, job.batch_numbers):
        batch = narrow[start : start + job.batch_numbers]
        target = job.out + start // job.batch_numbers * job.batch_stride
        machine.check_device([target], [batch.nbytes], "a kernel writes")
        ctypes.memmove(target, batch.ctypes.data, batch.nbytes)


def permute_rows(machine, job):
    number = job.first + np.arange(job.count, dtype=np.uint64) * np.uint64(job.step)
    is_outside = np.ones(job.count, bool)
    while is_outside.any():
        drawn = number[is_outside] + np.uint64(job.term)
        for factor in job.factors:
            drawn = drawn * np.uint64(factor) & np.uint64(job.mask)
            drawn ^= drawn >> np.uint64(job.shift)
        number[is_outside] = drawn
        is_outside[is_outside] = drawn >= job.length
    _array(machine, job.rows, job.count, np.int64 if job.needs_int64 else np.int32)[...] = number


def count_buckets(machine, job):
    starts = _array(machine, job.starts, job.buckets, np.uint32)
    starts += np.bincount(_rows(machine, job) >> job.shift, minlength=job.buckets).astype(np.uint32)


def start_buckets(machine, job):
    starts = _array(machine, job.starts, job.buckets, np.uint32)
    starts[...] = np.cumsum(starts) - starts


def order_rows(machine, job):
    starts = _array(machine, job.starts, job.buckets, np.uint32)
    places = _array(machine, job.order, job.count, np.uint32)
    for i, bucket in reversed(list(enumerate((_rows(machine, job) >> job.shift).tolist()))):
        places[starts[bucket]] = i
        starts[bucket] += 1


_GATHER_KERNELS = (gather_aligned, gather_unaligned, gather_bulk)
_ORDER_KERNELS = (permute_rows, count_buckets, start_buckets, order_rows)
KERNELS = {kernel.__name__: kernel for kernel in (*_GATHER_KERNELS, *_ORDER_KERNELS, narrow_numbers)}

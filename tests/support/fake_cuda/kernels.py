"""The kernels of `gather.cu`, `sort.cu` and `images.cu`, in NumPy. They check every address that they use."""

import ctypes
from types import SimpleNamespace

import numpy as np

from forebay.engines.cuda.decode import image_filler
from forebay.engines.cuda.order_program import INSTRUCTION_WORDS, Operation

__all__ = ["KERNELS", "run_program"]


def _array(gpu, pointer, count, dtype):
    """Return an array in device memory."""
    nbytes = count * np.dtype(dtype).itemsize
    gpu.check_device([pointer], [nbytes], "a kernel uses")
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(pointer), dtype)


def _rows(gpu, job):
    return _array(gpu, job.rows, job.count, np.int64 if job.needs_int64 else np.int32).astype(np.int64)


def _extents(gpu, job):
    """Return the first row, base address and stride of each extent."""
    return _array(gpu, job.extents, 3 * job.extent_count, np.int64).reshape(-1, 3)


def _sources(gpu, job):
    """Return the address of each row."""
    table = _extents(gpu, job)
    rows = _rows(gpu, job)
    which = np.maximum(np.searchsorted(table[:, 0], rows, side="right") - 1, 0)
    return table[which, 1] + rows * table[which, 2]


def gather_unaligned(gpu, job):
    sources = _sources(gpu, job)
    turns = _array(gpu, job.order, job.count, np.uint32) if job.order else np.arange(job.count)
    batch, row = np.divmod(np.arange(job.count), job.batch_rows)
    targets = job.out + batch * job.batch_stride + row * job.row_nbytes
    gpu.check_read(sources, np.full(job.count, job.row_nbytes))
    gpu.check_device(targets, np.full(job.count, job.row_nbytes), "a kernel writes to")
    for start in range(0, job.pieces * job.piece_nbytes, job.piece_nbytes):
        nbytes = min(job.piece_nbytes, job.row_nbytes - start)
        for i in turns.tolist():
            ctypes.memmove(int(targets[i]) + start, int(sources[i]) + start, nbytes)


def gather_aligned(gpu, job):
    table = _extents(gpu, job)
    wide = not (table[:, 1:] % 16).any() and not (job.out | job.batch_stride | job.row_nbytes | job.piece_nbytes) % 16
    if not wide:
        raise gpu.fault("a kernel got rows that cannot be read 16 bytes at a time")
    gather_unaligned(gpu, job)


def gather_bulk(gpu, job):
    if gpu.capability < (9, 0) or job.piece_nbytes > 8192:
        raise gpu.fault("bulk copies on a device without them, or of more bytes than a stage has")
    gpu.check_device(_sources(gpu, job), np.full(job.count, job.row_nbytes), "a bulk copy reads")
    gather_aligned(gpu, job)


def narrow_numbers(gpu, job):
    wide = _array(gpu, job.source, job.count, np.float64 if job.is_float else np.int64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32 if job.is_float else np.int32)
    for start in range(0, job.count, job.batch_numbers):
        batch = narrow[start : start + job.batch_numbers]
        target = job.out + start // job.batch_numbers * job.batch_stride
        gpu.check_device([target], [batch.nbytes], "a kernel writes to")
        ctypes.memmove(target, batch.ctypes.data, batch.nbytes)


def compute_rows(gpu, job):
    positions = job.first + np.arange(job.count, dtype=np.uint64) * np.uint64(job.step)
    rows = run_program(gpu, job.program, 0, positions)
    _array(gpu, job.rows, job.count, np.int64 if job.needs_int64 else np.int32)[...] = rows


def run_program(gpu, program, at, numbers):
    """Return the results of the instructions from `at` on, for many numbers at once."""
    while True:
        words = _array(gpu, program + at * INSTRUCTION_WORDS * 8, INSTRUCTION_WORDS, np.uint64)
        operation, at = Operation(int(words[0])), at + 1
        if operation is Operation.END:
            return numbers
        if operation is Operation.BRANCH:
            is_inside, results = numbers < words[2], np.empty_like(numbers)
            results[is_inside] = run_program(gpu, program, int(words[3]), numbers[is_inside] - words[1])
            if not is_inside.all():  # there is no instruction after the last branch
                results[~is_inside] = run_program(gpu, program, at, numbers[~is_inside])
            return results
        if operation is Operation.MIX:
            return _run_mix(gpu, program, at, words, numbers)
        numbers = _SIMPLE_OPERATIONS[operation](gpu, words, numbers)


def _run_mix(gpu, program, at, words, numbers):
    repetitions, slots = np.divmod(numbers, words[2])
    found, results = _array(gpu, int(words[1]), int(words[2]), np.uint64)[slots], np.empty_like(numbers)
    parts = found >> np.uint64(32)
    for part in np.unique(parts).tolist():
        is_part = parts == part
        entry = _array(gpu, program + (at + part) * INSTRUCTION_WORDS * 8, INSTRUCTION_WORDS, np.uint64)
        assert entry[0] == Operation.ENTER_PART
        inner = (found[is_part] & np.uint64(0xFFFFFFFF)) + repetitions[is_part] * entry[1]
        results[is_part] = run_program(gpu, program, int(entry[2]), inner)
    return results


def _permute(gpu, words, numbers):
    length, mask, term, shift, *factors = words[1:]
    numbers, is_outside = numbers.copy(), np.ones(len(numbers), bool)
    while is_outside.any():
        drawn = numbers[is_outside] + term
        for factor in factors:
            drawn = drawn * factor & mask
            drawn ^= drawn >> shift
        numbers[is_outside] = drawn
        is_outside[is_outside] = drawn >= length
    return numbers


def _look_up(dtype):
    def look_up(gpu, words, numbers):
        return _read_each(gpu, words[1], numbers, dtype)

    return look_up


def _draw_alias(gpu, words, numbers):
    bits = numbers * np.uint64(0x9E3779B97F4A7C15) + words[3]
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    buckets = bits >> (np.uint64(64) - words[2])
    points = bits >> (np.uint64(32) - words[2]) & np.uint64(0xFFFFFFFF)
    entries = _read_each(gpu, words[1], buckets, np.uint64)
    return np.where(points < (entries & np.uint64(0xFFFFFFFF)), buckets, entries >> np.uint64(32))


def _read_each(gpu, pointer, indices, dtype):
    """Return the entries at these indices of a table in device memory."""
    if not len(indices):
        return indices
    return _array(gpu, int(pointer), int(indices.max()) + 1, dtype)[indices].astype(np.uint64)


_SIMPLE_OPERATIONS = {
    Operation.ADD: lambda gpu, words, numbers: numbers + words[1],
    Operation.PERMUTE: _permute,
    Operation.LOOK_UP_32: _look_up(np.uint32),
    Operation.LOOK_UP_64: _look_up(np.uint64),
    Operation.DRAW_ALIAS: _draw_alias,
}


def resize_images(gpu, job):
    dtype = image_filler._IMAGE
    for row in np.frombuffer(bytes(job), dtype, offset=type(job).images.offset, count=image_filler.MAX_IMAGES):
        image = SimpleNamespace(**{name: row[name].item() for name in dtype.names})
        if not image.pixels:  # the rest of the table is empty
            break
        pixels = _read_pixels(gpu, image, job.channels)
        row_nbytes = job.height * job.width * job.channels
        batch, row = divmod(image.place, job.batch_rows)
        target = job.out + batch * job.batch_stride + row * row_nbytes
        vertical = _weights(image.height, job.height, image.top, image.part_height)
        horizontal = _weights(image.width, job.width, image.left, image.part_width)
        resized = np.floor(np.einsum("yi,ijc,xj->yxc", vertical, pixels, horizontal, optimize=True) + 0.5).astype(
            np.uint8
        )
        _array(gpu, target, row_nbytes, np.uint8)[...] = resized.reshape(-1)


def _read_pixels(gpu, image, channels):
    """Return the upright pixels of an image in device memory. Negative strides turn the image."""
    lines, columns = np.arange(image.height) * image.line_stride, np.arange(image.width) * image.pixel_stride
    offsets = lines[:, None, None] + columns[:, None] + np.arange(channels)
    first, last = int(offsets.min()), int(offsets.max())
    memory = _array(gpu, image.pixels + first, last - first + 1, np.uint8)
    return memory[offsets - first].astype(np.float32)


def _weights(source, target, origin, length):
    """Return the weight of each source pixel for each target pixel of an axis."""
    ratio = length / target
    scale, centres = max(ratio, 1.0), origin + (np.arange(target) + 0.5) * ratio
    distances = np.abs(np.arange(source) + 0.5 - centres[:, None]) / scale
    weights = np.maximum(0, 1 - distances)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def count_buckets(gpu, job):
    starts = _array(gpu, job.starts, job.buckets, np.uint32)
    starts += np.bincount(_rows(gpu, job) >> job.shift, minlength=job.buckets).astype(np.uint32)


def start_buckets(gpu, job):
    starts = _array(gpu, job.starts, job.buckets, np.uint32)
    starts[...] = np.cumsum(starts) - starts


def order_rows(gpu, job):
    starts = _array(gpu, job.starts, job.buckets, np.uint32)
    places = _array(gpu, job.order, job.count, np.uint32)
    for i, bucket in reversed(list(enumerate((_rows(gpu, job) >> job.shift).tolist()))):
        places[starts[bucket]] = i
        starts[bucket] += 1


_GATHER_KERNELS = (gather_aligned, gather_unaligned, gather_bulk)
_ORDER_KERNELS = (compute_rows, count_buckets, start_buckets, order_rows)
KERNELS = {kernel.__name__: kernel for kernel in (*_GATHER_KERNELS, *_ORDER_KERNELS, narrow_numbers, resize_images)}

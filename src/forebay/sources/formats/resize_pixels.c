// Resizes images with the bilinear filter of Pillow. In a smaller image, each pixel is a weighted mean of all input pixels
// around it. `pixel_resize.py` calls `forebay_resize` through ctypes, which releases the GIL.

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHT_BITS = 22 };  // weights are integers with this number of bits after the point, as in Pillow

// How the pixels of one axis are computed. Output pixel `i` is a weighted sum of the `counts[i]` input pixels from
// `starts[i]` on. Their weights begin at `weights[i * stride]`.
typedef struct {
    int32_t *starts, *counts, *weights;
    int32_t stride;
} Axis;

static void close_axis(Axis *axis) {
    free(axis->starts);
    free(axis->counts);
    free(axis->weights);
}

// Computes the weights that resize the `length` pixels from `begin` on to `size` pixels. `input` is the number of pixels of
// the whole axis. Returns 0 if memory is short, else 1.
static int open_axis(Axis *axis, int32_t input, double begin, double length, int32_t size) {
    const double scale = length / size, reach = scale > 1 ? scale : 1;  // input pixels on each side of an output pixel
    axis->stride = (int32_t)ceil(reach) * 2 + 1;
    axis->starts = malloc(sizeof(int32_t) * (size_t)size);
    axis->counts = malloc(sizeof(int32_t) * (size_t)size);
    axis->weights = malloc(sizeof(int32_t) * (size_t)size * (size_t)axis->stride);
    double *exact = malloc(sizeof(double) * (size_t)axis->stride);
    const int has_memory = axis->starts && axis->counts && axis->weights && exact;
    for (int32_t i = 0; has_memory && i < size; i++) {
        const double centre = begin + (i + 0.5) * scale;
        int32_t start = (int32_t)(centre - reach + 0.5), stop = (int32_t)(centre + reach + 0.5);
        if (start < 0) start = 0;
        if (stop > input) stop = input;
        double sum = 0;
        for (int32_t k = 0; k < stop - start; k++) {
            const double distance = fabs((k + start - centre + 0.5) * (1.0 / reach));
            exact[k] = distance < 1 ? 1 - distance : 0;
            sum += exact[k];
        }
        for (int32_t k = 0; k < stop - start; k++) {
            const double weight = sum != 0 ? exact[k] * (1.0 / sum) : exact[k];
            axis->weights[(size_t)i * (size_t)axis->stride + (size_t)k] = (int32_t)(0.5 + weight * (1 << WEIGHT_BITS));
        }
        axis->starts[i] = start;
        axis->counts[i] = stop - start;
    }
    free(exact);
    return has_memory;
}

// Converts a weighted sum to a pixel. Sums begin with one half, 1 << (WEIGHT_BITS - 1), so that the shift rounds.
static uint8_t round_sum(int32_t sum) {
    const int32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

// Resizes one row to `size` pixels. `resize_row` passes `channels` as a constant, so that the compiler unrolls the loops
// over channels.
static inline void resize_row_inline(uint8_t *restrict to, const uint8_t *restrict from, const Axis *axis, int32_t size,
                                     int32_t channels) {
    for (int32_t i = 0; i < size; i++) {
        const uint8_t *pixel = from + (size_t)axis->starts[i] * (size_t)channels;
        const int32_t *weights = axis->weights + (size_t)i * (size_t)axis->stride;
        int32_t sums[4] = {1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1)};
        for (int32_t k = 0; k < axis->counts[i]; k++, pixel += channels)
            for (int32_t c = 0; c < channels; c++) sums[c] += pixel[c] * weights[k];
        for (int32_t c = 0; c < channels; c++) *to++ = round_sum(sums[c]);
    }
}

static void resize_row(uint8_t *to, const uint8_t *from, const Axis *axis, int32_t size, int32_t channels) {
    switch (channels) {
    case 1: resize_row_inline(to, from, axis, size, 1); break;
    case 3: resize_row_inline(to, from, axis, size, 3); break;
    default: resize_row_inline(to, from, axis, size, 4);
    }
}

// Writes the weighted sum of `count` rows of `nbytes` bytes each to `to`. `sums` is scratch memory for `nbytes` sums.
static void sum_rows(uint8_t *restrict to, const uint8_t *restrict from, const int32_t *weights, int32_t count, int64_t nbytes,
                     int32_t *restrict sums) {
    for (int64_t i = 0; i < nbytes; i++) sums[i] = 1 << (WEIGHT_BITS - 1);
    for (int32_t k = 0; k < count; k++, from += nbytes) {
        const int32_t weight = weights[k];
        for (int64_t i = 0; i < nbytes; i++) sums[i] += from[i] * weight;
    }
    for (int64_t i = 0; i < nbytes; i++) to[i] = round_sum(sums[i]);
}

// Resizes a part of the image `from` to `to_height` rows of `to_width` pixels. The part begins at row `box[0]` and column
// `box[1]`, and has `box[2]` rows and `box[3]` columns. `from` has `height` rows of `width` pixels, `row_stride` bytes
// apart. `to` is contiguous. Returns 1 if memory is short, else 0.
int64_t forebay_resize(uint8_t *to, int32_t to_height, int32_t to_width, const uint8_t *from, int32_t height, int32_t width,
                       int64_t row_stride, int32_t channels, const double *box) {
    Axis vertical = {0}, horizontal = {0};
    const int64_t to_nbytes = (int64_t)to_width * channels;
    const int resizes_rows = to_height != height || box[0] != 0 || box[2] != height;
    const int resizes_columns = to_width != width || box[1] != 0 || box[3] != width;
    int failed = !open_axis(&vertical, height, box[0], box[2], to_height);
    failed |= !open_axis(&horizontal, width, box[1], box[3], to_width);
    uint8_t *narrow = NULL;  // the rows with their new width
    int32_t *sums = NULL;
    if (!failed) {
        // The output needs only the input rows from `first` to `last` (exclusive).
        const int32_t first = resizes_rows ? vertical.starts[0] : 0;
        const int32_t last = resizes_rows ? vertical.starts[to_height - 1] + vertical.counts[to_height - 1] : height;
        narrow = resizes_rows ? malloc((size_t)(last - first) * (size_t)to_nbytes + 1) : to;
        sums = malloc(sizeof(int32_t) * (size_t)to_nbytes + 1);
        failed = !narrow || !sums;
        for (int32_t row = first; !failed && row < last; row++) {
            uint8_t *target = narrow + (int64_t)(row - first) * to_nbytes;
            const uint8_t *source = from + row * row_stride;
            if (resizes_columns) resize_row(target, source, &horizontal, to_width, channels);
            else memcpy(target, source, (size_t)to_nbytes);
        }
        for (int32_t row = 0; !failed && resizes_rows && row < to_height; row++)
            sum_rows(to + row * to_nbytes, narrow + (int64_t)(vertical.starts[row] - first) * to_nbytes,
                     vertical.weights + (size_t)row * (size_t)vertical.stride, vertical.counts[row], to_nbytes, sums);
        if (resizes_rows) free(narrow);
    }
    free(sums);
    close_axis(&vertical);
    close_axis(&horizontal);
    return failed;
}

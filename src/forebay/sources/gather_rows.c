// Copies rows with given numbers to one buffer. `row_gather.py` calls `forebay_gather_rows` without the GIL, and says for
// which rows it is used.

#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t end;      // number of the first row after this part
    int64_t address;  // row `r` of this part begins at address + r * stride
    int64_t stride;   // bytes
} Part;

enum {
    BLOCK_ROWS = 64,      // rows whose addresses are computed before they are copied
    PREFETCHED_ROWS = 8,  // a row is prefetched when the 8th row before it is copied (docs/measurements.md)
    CACHE_LINE = 64,      // bytes
    FEW_PARTS = 8,        // for fewer parts, a linear search is faster than a binary search
};

static int64_t find_part(const Part *parts, int64_t part_count, int64_t row) {
    int64_t low = 0, high = part_count - 1;
    while (high - low >= FEW_PARTS) {
        int64_t middle = (low + high) / 2;
        if (row < parts[middle].end) high = middle; else low = middle + 1;
    }
    while (row >= parts[low].end) low++;
    return low;
}

static void prefetch(const char *row, int64_t nbytes) {
    __builtin_prefetch(row);
    if (nbytes > CACHE_LINE) __builtin_prefetch(row + CACHE_LINE);
}

static void copy(char *restrict to, const char *restrict from, int64_t nbytes) {
    switch (nbytes) {  // for a constant size, the compiler replaces the call of memcpy by one instruction
    case 1: *to = *from; break;
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    case 8: memcpy(to, from, 8); break;
    default: memcpy(to, from, (size_t)nbytes);
    }
}

// Writes row `rows[i]` to out + i * row_nbytes. `parts` is sorted by `end`. Returns `count`, or the index in `rows` of the
// first row number that no part has.
int64_t forebay_gather_rows(char *restrict out, int64_t row_nbytes, const int64_t *rows, int64_t count, const Part *parts,
                            int64_t part_count) {
    const int64_t end = part_count ? parts[part_count - 1].end : 0;
    const char *addresses[BLOCK_ROWS];
    for (int64_t start = 0; start < count; start += BLOCK_ROWS) {
        const int64_t block = count - start < BLOCK_ROWS ? count - start : BLOCK_ROWS;
        for (int64_t i = 0; i < block; i++) {
            const int64_t row = rows[start + i];
            if (row < 0 || row >= end) return start + i;
            const Part *part = parts + find_part(parts, part_count, row);
            addresses[i] = (const char *)(uintptr_t)(part->address + row * part->stride);
            if (i < PREFETCHED_ROWS) prefetch(addresses[i], row_nbytes);
        }
        for (int64_t i = 0; i < block; i++) {
            if (i + PREFETCHED_ROWS < block) prefetch(addresses[i + PREFETCHED_ROWS], row_nbytes);
            copy(out, addresses[i], row_nbytes);
            out += row_nbytes;
        }
    }
    return count;
}

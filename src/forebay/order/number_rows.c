// Computes row numbers: permutations without a table, and draws from an alias table. `row_numbers.py` loads the functions.
// `permutation.py` and `sampling.py` call them, and have the same steps in NumPy.
#include <stdint.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

enum {
    BLOCK = 1024,  // numbers of a permutation that are computed together; they and their indices fit into the L1 cache
    DRAWS = 256,   // draws whose entries are fetched from memory at the same time
};

// The constants of a permutation; `PermutationParams` describes them.
typedef struct {
    uint32_t length, mask, term, shift, factors[5];
} Params;

// Applies the addition and all rounds to `numbers`. The compiler turns this loop into vector instructions.
static inline __attribute__((always_inline)) void round_trip(uint32_t *numbers, int64_t count, Params params) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t number = numbers[i] + params.term;
        for (int round = 0; round < 5; round++) {
            number = number * params.factors[round] & params.mask;
            number ^= number >> params.shift;
        }
        numbers[i] = number;
    }
}

static void run_rounds(uint32_t *numbers, int64_t count, Params params) {
    round_trip(numbers, count, params);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void run_rounds_avx2(uint32_t *numbers, int64_t count, Params params) {
    round_trip(numbers, count, params);
}

// Returns whether the processor has AVX2 and the system saves its registers.
static int has_avx2(void) {
    uint32_t a, b, c, d, saved, upper;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
    __asm__("xgetbv" : "=a"(saved), "=d"(upper) : "c"(0));
    return (saved & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}

static int uses_avx2;

// Runs once, when the library is loaded: a virtual machine takes microseconds to answer.
__attribute__((constructor)) static void choose_instructions(void) {
    uses_avx2 = has_avx2();
}
#endif

// Writes the row number at each position to `rows`, and returns 0. A number that is not below `length` goes through the
// rounds again.
int64_t forebay_permute(const int64_t *positions, int64_t count, int64_t *rows, const Params *params) {
    uint32_t numbers[BLOCK], indices[BLOCK];
    void (*run)(uint32_t *, int64_t, Params) = run_rounds;
#ifdef __x86_64__
    if (uses_avx2) run = run_rounds_avx2;
#endif
    for (int64_t start = 0; start < count; start += BLOCK) {
        int64_t left = count - start < BLOCK ? count - start : BLOCK;
        for (int64_t i = 0; i < left; i++) {
            numbers[i] = (uint32_t)positions[start + i];
            indices[i] = (uint32_t)i;
        }
        while (left) {
            run(numbers, left, *params);
            // Collect the numbers that are outside, without a branch: a processor cannot predict which ones are.
            int64_t outside = 0;
            for (int64_t i = 0; i < left; i++) {
                const uint32_t number = numbers[i], index = indices[i];
                rows[start + index] = number;
                numbers[outside] = number;
                indices[outside] = index;
                outside += number >= params->length;
            }
            left = outside;
        }
    }
    return 0;
}

// Writes the number that is drawn at each position to `drawn`, and returns 0. The table has `1 << bucket_bits` entries.
int64_t forebay_draw_alias(const int64_t *positions, int64_t count, int64_t *drawn, const uint64_t *entries,
                           int64_t bucket_bits, uint64_t key) {
    uint64_t bits[DRAWS];
    for (int64_t start = 0; start < count; start += DRAWS) {
        const int64_t block = count - start < DRAWS ? count - start : DRAWS;
        for (int64_t i = 0; i < block; i++) {
            uint64_t number = (uint64_t)positions[start + i] * 0x9E3779B97F4A7C15u + key;
            number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9u;
            number = (number ^ number >> 27) * 0x94D049BB133111EBu;
            bits[i] = number ^ number >> 31;
            __builtin_prefetch(&entries[bits[i] >> (64 - bucket_bits)]);
        }
        for (int64_t i = 0; i < block; i++) {
            const uint64_t bucket = bits[i] >> (64 - bucket_bits), entry = entries[bucket], alias = entry >> 32;
            const uint64_t is_own = (uint32_t)(bits[i] >> (32 - bucket_bits)) < (uint32_t)entry;
            drawn[start + i] = (int64_t)(alias + (bucket - alias) * is_own);  // no processor could predict a branch
        }
    }
    return 0;
}

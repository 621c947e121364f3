// Kernels that gather rows from host or device memory into a slot. NVRTC compiles them for the user's GPU.
//
// A kernel copies a row in pieces. One team of neighbouring threads (a warp, or fewer threads for short rows) copies
// each piece. `lanes` is the number of threads of a team, and `lane` is the index of a thread in its team. A few
// blocks are enough to saturate the host link (PCIe or NVLink), because threads that read page-locked memory mostly
// wait. The other multiprocessors of the GPU stay free for the consumer's kernels.

typedef unsigned char byte;
typedef unsigned int uint;
typedef unsigned long long ulong64;

// From row `first` to the row before the `first` of the next extent, row number `row` begins at `base + row * stride`,
// in host or device memory.
struct Extent {
    long long first;
    const byte* base;
    long long stride;
};

struct GatherJob {
    const void* rows;         // the row numbers of the group: int64 if `needs_int64`, else int32
    const uint* order;        // indices into `rows`, in the order of reading; null: read rows as listed
    const Extent* extents;    // sorted by `first`
    byte* out;                // row i goes to out + (i / batch_rows) * batch_stride + (i % batch_rows) * row_nbytes
    long long row_nbytes;
    long long batch_stride;   // bytes from one batch to the next
    uint batch_rows;
    uint count;               // number of rows of the group
    uint extent_count;
    uint needs_int64;
    uint lanes;               // threads of a team: a power of two, at most 32
    uint pieces;              // pieces per row
    uint piece_nbytes;        // bytes of a piece; a multiple of 16. The last piece of a row may be shorter.
};

// In the functions below, `i` is an index into `job.rows`, and `row` is a row number of the source.

__device__ __forceinline__ long long row_at(const GatherJob& job, uint i) {
    return job.needs_int64 ? ((const long long*)job.rows)[i] : (long long)((const int*)job.rows)[i];
}

__device__ __forceinline__ const byte* address_of(const GatherJob& job, long long row) {
    uint low = 0, high = job.extent_count;  // binary search for the extent of the row
    while (high - low > 1) {
        uint middle = (low + high) / 2;
        if (job.extents[middle].first <= row) low = middle; else high = middle;
    }
    return job.extents[low].base + row * job.extents[low].stride;
}

__device__ __forceinline__ byte* target_of(const GatherJob& job, uint i) {
    return job.out + (long long)(i / job.batch_rows) * job.batch_stride + (long long)(i % job.batch_rows) * job.row_nbytes;
}

// Returns 16 bytes that begin `shift` bytes (0 to 15) after the start of `low`; `high` holds the 16 bytes after `low`.
__device__ __forceinline__ uint4 shift_units(uint4 low, uint4 high, uint shift) {
    uint w0 = low.x, w1 = low.y, w2 = low.z, w3 = low.w, w4 = high.x, w5 = high.y, w6 = high.z;
    if (shift & 8) w0 = w2, w1 = w3, w2 = w4, w3 = w5, w4 = w6, w5 = high.w;
    if (shift & 4) w0 = w1, w1 = w2, w2 = w3, w3 = w4, w4 = w5;
    uint bits = (shift & 3) * 8;
    return make_uint4(__funnelshift_r(w0, w1, bits), __funnelshift_r(w1, w2, bits), __funnelshift_r(w2, w3, bits),
                      __funnelshift_r(w3, w4, bits));
}

// Returns the unit that thread `sender` of the team passes. `team` is the bit mask of the team's threads in their warp.
__device__ __forceinline__ uint4 receive_unit(uint team, uint4 passed, uint sender, uint lanes) {
    return make_uint4(__shfl_sync(team, passed.x, sender, lanes), __shfl_sync(team, passed.y, sender, lanes),
                      __shfl_sync(team, passed.z, sender, lanes), __shfl_sync(team, passed.w, sender, lanes));
}

const uint UNITS_IN_FLIGHT = 4;  // units that a thread reads before it writes any of them, to hide the latency

// Copies any number of bytes between any addresses. A unit has 16 bytes and an aligned address. Each thread reads units
// of the source, gets the unit after each of them from its neighbour, and writes units of the target. The team reads a
// unit only if the unit holds a byte of the row, so the team never reads a memory page outside the row.
__device__ __forceinline__ void copy_unaligned(byte* to, const byte* from, long long nbytes, uint lane, uint lanes) {
    const uint team = (lanes == 32 ? ~0u : (1u << lanes) - 1) << (threadIdx.x % 32 & ~(lanes - 1));
    const uint skip = (ulong64)to & 15;  // bytes of the first unit of the target that lie before the row
    const uint shift = (ulong64)(from - skip) & 15;
    const uint4* source = (const uint4*)(from - skip - shift);
    uint4* target = (uint4*)(to - skip);
    // The row is in units `first` to `last` of the source, and in units 0 to `count - 1` of the target.
    const long long first = (skip + shift) / 16, last = (skip + shift + nbytes - 1) / 16;
    const long long count = (skip + nbytes + 15) / 16;
    for (long long begin = 0; begin < count; begin += lanes * UNITS_IN_FLIGHT) {
        uint4 units[UNITS_IN_FLIGHT + 1];  // the last one is the unit after the team's last unit; only lane 0 reads it
        #pragma unroll
        for (uint k = 0; k <= UNITS_IN_FLIGHT; k++) {
            units[k] = make_uint4(0, 0, 0, 0);
            if (begin + k * lanes > last) continue;
            const long long i = begin + k * lanes + lane;
            if (i >= first && i <= last && (k < UNITS_IN_FLIGHT || lane == 0)) units[k] = source[i];
        }
        #pragma unroll
        for (uint k = 0; k < UNITS_IN_FLIGHT; k++) {
            if (begin + k * lanes >= count) break;
            const uint4 own = units[k], later = lane == 0 ? units[k + 1] : own;
            const uint neighbour = (lane + 1) % lanes;  // lane 0 passes the next round's unit to the last lane
            const uint4 next = receive_unit(team, later, neighbour, lanes);
            const long long i = begin + k * lanes + lane;
            if (i >= count) continue;
            const uint4 shifted = shift_units(own, next, shift);
            if ((i > 0 || skip == 0) && (i + 1) * 16 <= skip + nbytes) {
                target[i] = shifted;
                continue;
            }
            const uint words[4] = {shifted.x, shifted.y, shifted.z, shifted.w};
            #pragma unroll
            for (uint b = 0; b < 16; b++)
                if (i * 16 + b >= skip && i * 16 + b < skip + nbytes)
                    ((byte*)(target + i))[b] = (byte)(words[b / 4] >> b % 4 * 8);
        }
    }
}

struct Piece {
    const byte* from;
    byte* to;
    long long nbytes;
};

// Returns piece `number` of the job. Pieces are numbered row by row, in the order of reading.
__device__ __forceinline__ Piece piece_at(const GatherJob& job, uint number) {
    uint position = number / job.pieces;
    long long start = (long long)(number % job.pieces) * job.piece_nbytes;
    uint i = job.order ? job.order[position] : position;
    return {address_of(job, row_at(job, i)) + start, target_of(job, i) + start,
            min((long long)job.piece_nbytes, job.row_nbytes - start)};
}

// Gathers rows whose addresses and lengths are multiples of 16: each thread copies units of 16 bytes. A read over the
// link takes one microsecond or more, so a team reads several pieces at a time to hide that latency.
const uint PIECES_IN_FLIGHT = 8;

extern "C" __global__ void gather_aligned(GatherJob job) {
    uint lane = threadIdx.x % job.lanes, block_teams = blockDim.x / job.lanes;
    uint teams = gridDim.x * block_teams, team = blockIdx.x * block_teams + threadIdx.x / job.lanes;
    uint pieces = job.count * job.pieces;
    for (uint number = team; number < pieces; number += teams * PIECES_IN_FLIGHT) {
        const uint4* from[PIECES_IN_FLIGHT];
        uint4* to[PIECES_IN_FLIGHT];
        uint units[PIECES_IN_FLIGHT], max_units = 0;
        #pragma unroll
        for (uint k = 0; k < PIECES_IN_FLIGHT; k++) {
            units[k] = 0;
            if (number + k * teams >= pieces) continue;
            Piece piece = piece_at(job, number + k * teams);
            from[k] = (const uint4*)piece.from;
            to[k] = (uint4*)piece.to;
            units[k] = (uint)(piece.nbytes / 16);
            max_units = max(max_units, units[k]);
        }
        for (uint unit = lane; unit < max_units; unit += job.lanes) {
            uint4 values[PIECES_IN_FLIGHT];
            #pragma unroll
            for (uint k = 0; k < PIECES_IN_FLIGHT; k++) if (unit < units[k]) values[k] = from[k][unit];
            #pragma unroll
            for (uint k = 0; k < PIECES_IN_FLIGHT; k++) if (unit < units[k]) to[k][unit] = values[k];
        }
    }
}

// Gathers rows with any addresses and lengths.
extern "C" __global__ void gather_unaligned(GatherJob job) {
    uint lane = threadIdx.x % job.lanes, block_teams = blockDim.x / job.lanes;
    uint teams = gridDim.x * block_teams, team = blockIdx.x * block_teams + threadIdx.x / job.lanes;
    uint pieces = job.count * job.pieces;
    for (uint number = team; number < pieces; number += teams) {
        Piece piece = piece_at(job, number);
        copy_unaligned(piece.to, piece.from, piece.nbytes, lane, job.lanes);
    }
}

// Gathers long rows inside device memory with Hopper's bulk copies, which pass through shared memory and not through
// registers. One thread per block keeps a few copies in flight, so the multiprocessors stay free for the consumer's
// kernels. All addresses and lengths are multiples of 16.
//
// A stage is a part of shared memory that holds one piece. Pieces use the stages in turn: a bulk copy reads a piece
// into its stage, and a second bulk copy writes it to the slot.
#if __CUDA_ARCH__ >= 900

const uint STAGES = 4;           // stages of a block
const uint STAGE_NBYTES = 8192;  // bytes; the maximum size of a piece (PIECE_NBYTES in row_mover.py)

__device__ __forceinline__ uint in_shared(const void* pointer) { return (uint)__cvta_generic_to_shared(pointer); }

__device__ __forceinline__ void begin_read(const Piece& piece, byte* stage, ulong64* arrival) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(in_shared(arrival)), "r"((uint)piece.nbytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(in_shared(stage)), "l"(piece.from), "r"((uint)piece.nbytes), "r"(in_shared(arrival)) : "memory");
}

__device__ __forceinline__ void wait_for_read(ulong64* arrival, uint parity) {
    asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }"
                 :: "r"(in_shared(arrival)), "r"(parity) : "memory");
}

__device__ __forceinline__ void begin_write(const Piece& piece, const byte* stage) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :: "l"(piece.to), "r"(in_shared(stage)), "r"((uint)piece.nbytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;");
}

extern "C" __global__ void gather_bulk(GatherJob job) {
    __shared__ __align__(128) byte stages[STAGES][STAGE_NBYTES];
    __shared__ ulong64 arrivals[STAGES];
    if (threadIdx.x) return;
    for (uint k = 0; k < STAGES; k++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(in_shared(&arrivals[k])));
    asm volatile("fence.proxy.async.shared::cta;");
    uint pieces = job.count * job.pieces, next = blockIdx.x, reads = 0, writes = 0;  // `next`: the next piece to read
    for (; reads < STAGES - 1 && next < pieces; reads++, next += gridDim.x)
        begin_read(piece_at(job, next), stages[reads], &arrivals[reads]);
    for (uint number = blockIdx.x; number < pieces; number += gridDim.x, writes++) {
        uint k = writes % STAGES;
        wait_for_read(&arrivals[k], writes / STAGES % 2);
        begin_write(piece_at(job, number), stages[k]);
        if (next >= pieces) continue;
        // The next read uses the stage of the previous write. Wait until all writes but the latest have emptied their
        // stages.
        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        begin_read(piece_at(job, next), stages[reads % STAGES], &arrivals[reads % STAGES]);
        reads++, next += gridDim.x;
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#endif

// Converts contiguous 64-bit numbers to 32 bits, from a separate buffer into the slot, for frameworks that hold them in
// 32 bits. Integers keep their lower 32 bits, as in NumPy.

struct NarrowJob {
    const ulong64* source;
    byte* out;                // number i goes to out + (i / batch_numbers) * batch_stride + (i % batch_numbers) * 4
    long long batch_stride;   // bytes from one batch to the next
    ulong64 batch_numbers;    // numbers per batch
    ulong64 count;            // number of all 64-bit numbers
    uint is_float;            // whether numbers are float64; otherwise they are 64-bit integers
};

extern "C" __global__ void narrow_numbers(NarrowJob job) {
    for (ulong64 i = blockIdx.x * (ulong64)blockDim.x + threadIdx.x; i < job.count; i += gridDim.x * (ulong64)blockDim.x) {
        uint* to = (uint*)(job.out + (long long)(i / job.batch_numbers) * job.batch_stride) + i % job.batch_numbers;
        ulong64 number = job.source[i];
        *to = job.is_float ? __float_as_uint((float)__longlong_as_double((long long)number)) : (uint)number;
    }
}

// Computes row numbers, so that the host need not upload them. `order_program.py` assembles the program from the steps
// of an order (`order/device_steps.py`).

const uint INSTRUCTION_WORDS = 10;
const uint ROUNDS = 5;  // rounds of a permutation

// The first word of an instruction, and the words after it.
enum Operation {
    END = 0,         // no more words; the current number is the row number
    ADD = 1,         // offset
    PERMUTE = 2,     // length, mask, term, shift, then a factor for each round (`order/permutation.py`)
    LOOK_UP_32 = 3,  // address of a table
    LOOK_UP_64 = 4,  // address of a table
    DRAW_ALIAS = 5,  // address of the entries, bits of a bucket number, key (`order/sampling.py`)
    BRANCH = 6,      // start, stop, target: if the number is below stop, subtract start and go to the target
    MIX = 7,         // address of slots, number of slots; an ENTER_PART for each part follows (`order/mix_pattern.py`)
    ENTER_PART = 8,  // slots of the part in the table, target
};

struct OrderJob {
    void* rows;             // output: the row numbers, int64 if `needs_int64`, else int32
    const ulong64* program;
    ulong64 first, step;    // the positions in the order are first, first + step, ...
    uint count;             // number of row numbers to compute
    uint needs_int64;
};

__device__ __forceinline__ ulong64 permute(const ulong64* words, ulong64 number) {
    const ulong64 length = words[1], mask = words[2], term = words[3], shift = words[4];
    do {
        number += term;
        for (uint round = 0; round < ROUNDS; round++) {
            number = number * words[5 + round] & mask;
            number ^= number >> shift;
        }
    } while (number >= length);
    return number;
}

__device__ __forceinline__ ulong64 draw_alias(const ulong64* words, ulong64 position) {
    const ulong64* entries = (const ulong64*)words[1];
    ulong64 bits = position * 0x9E3779B97F4A7C15ull + words[3];
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9ull;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBull;
    bits ^= bits >> 31;
    const ulong64 bucket = bits >> (64 - words[2]), entry = entries[bucket];
    const uint point = (uint)(bits >> (32 - words[2]));
    return point < (uint)entry ? bucket : entry >> 32;
}

__device__ ulong64 run_program(const ulong64* program, ulong64 number) {
    ulong64 repetitions = 0;  // complete repetitions of the table of the last MIX before the position
    for (ulong64 next = 0;;) {
        const ulong64* words = program + next * INSTRUCTION_WORDS;
        next++;
        switch ((uint)words[0]) {
        case ADD: number += words[1]; break;
        case PERMUTE: number = permute(words, number); break;
        case LOOK_UP_32: number = ((const uint*)words[1])[number]; break;
        case LOOK_UP_64: number = ((const ulong64*)words[1])[number]; break;
        case DRAW_ALIAS: number = draw_alias(words, number); break;
        case BRANCH:
            if (number < words[2]) {
                number -= words[1];
                next = words[3];
            }
            break;
        case MIX: {
            const ulong64 slot = ((const ulong64*)words[1])[number % words[2]];
            repetitions = number / words[2];
            number = (uint)slot;
            next += slot >> 32;
            break;
        }
        case ENTER_PART:
            number += repetitions * words[1];
            next = words[2];
            break;
        default: return number;  // END
        }
    }
}

extern "C" __global__ void compute_rows(OrderJob job) {
    for (uint i = blockIdx.x * blockDim.x + threadIdx.x; i < job.count; i += gridDim.x * blockDim.x) {
        const ulong64 number = run_program(job.program, job.first + i * job.step);
        if (job.needs_int64) ((long long*)job.rows)[i] = (long long)number;
        else ((int*)job.rows)[i] = (int)number;
    }
}

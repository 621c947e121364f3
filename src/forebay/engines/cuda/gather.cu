// Kernels that gather rows from host or device memory into a slot. NVRTC compiles them for the user's GPU.
//
// A team of neighbouring threads (a warp, or fewer threads for short rows) copies one row. A few blocks are enough to
// saturate the host link (PCIe or NVLink), because threads that read page-locked memory mostly wait. The rest of the GPU
// stays free.

typedef unsigned char byte;
typedef unsigned int uint;
typedef unsigned long long ulong64;

// From row `first` on, a row begins at `base + row * stride`, in host or device memory.
struct Extent {
    long long first;
    const byte* base;
    long long stride;
};

struct GatherJob {
    const void* rows;         // row numbers, `needs_int64` ? 8 : 4 bytes each
    const uint* order;        // order in which to read the rows; null: as listed
    const Extent* extents;    // sorted by their first rows
    byte* out;                // row i goes to out + (i / batch_rows) * batch_stride + (i % batch_rows) * row_nbytes
    long long row_nbytes;
    long long batch_stride;
    uint batch_rows;
    uint count;
    uint extent_count;
    uint needs_int64;
    uint lanes;               // threads of a team: a power of two, at most 32
    uint pieces;              // pieces of a row; each piece has its own team
    uint piece_nbytes;        // a multiple of 16 if rows are
};

__device__ __forceinline__ long long row_at(const GatherJob& job, uint i) {
    return job.needs_int64 ? ((const long long*)job.rows)[i] : (long long)((const int*)job.rows)[i];
}

__device__ __forceinline__ const byte* address_of(const GatherJob& job, long long row) {
    uint low = 0, high = job.extent_count;
    while (high - low > 1) {
        uint middle = (low + high) / 2;
        if (job.extents[middle].first <= row) low = middle; else high = middle;
    }
    return job.extents[low].base + row * job.extents[low].stride;
}

__device__ __forceinline__ byte* target_of(const GatherJob& job, uint i) {
    return job.out + (long long)(i / job.batch_rows) * job.batch_stride + (long long)(i % job.batch_rows) * job.row_nbytes;
}

// Copies any length between any addresses. It writes whole words of the target, each built from two words of the source.
// It reads a word only if it needs a byte of it, so it never touches a page outside the row.
__device__ __forceinline__ void copy_unaligned(byte* to, const byte* from, long long nbytes, uint lane, uint lanes) {
    long long head = (4 - ((ulong64)to & 3)) & 3;
    if (head > nbytes) head = nbytes;
    for (long long i = lane; i < head; i += lanes) to[i] = from[i];
    long long words = (nbytes - head) / 4;
    uint* target = (uint*)(to + head);
    const byte* start = from + head;
    uint shift = ((ulong64)start & 3) * 8;
    const uint* source = (const uint*)((ulong64)start & ~3ull);
    if (shift == 0) {
        for (long long i = lane; i < words; i += lanes) target[i] = source[i];
    } else {
        for (long long i = lane; i < words; i += lanes) target[i] = __funnelshift_r(source[i], source[i + 1], shift);
    }
    for (long long i = head + words * 4 + lane; i < nbytes; i += lanes) to[i] = from[i];
}

struct Piece {
    const byte* from;
    byte* to;
    long long nbytes;
};

__device__ __forceinline__ Piece piece_at(const GatherJob& job, uint turn) {
    uint position = turn / job.pieces;
    long long start = (long long)(turn % job.pieces) * job.piece_nbytes;
    uint i = job.order ? job.order[position] : position;
    return {address_of(job, row_at(job, i)) + start, target_of(job, i) + start,
            min((long long)job.piece_nbytes, job.row_nbytes - start)};
}

// Each thread copies 16 bytes at a time: all addresses and lengths are multiples of 16. A read over the link takes one
// microsecond or more, so a team reads several pieces at once to hide that latency.
const uint PIECES_IN_FLIGHT = 8;

extern "C" __global__ void gather_aligned(GatherJob job) {
    uint lane = threadIdx.x % job.lanes, own = blockDim.x / job.lanes;
    uint teams = gridDim.x * own, turns = job.count * job.pieces;
    for (uint turn = blockIdx.x * own + threadIdx.x / job.lanes; turn < turns; turn += teams * PIECES_IN_FLIGHT) {
        const uint4* from[PIECES_IN_FLIGHT];
        uint4* to[PIECES_IN_FLIGHT];
        uint units[PIECES_IN_FLIGHT], most = 0;
        #pragma unroll
        for (uint k = 0; k < PIECES_IN_FLIGHT; k++) {
            units[k] = 0;
            if (turn + k * teams >= turns) continue;
            Piece piece = piece_at(job, turn + k * teams);
            from[k] = (const uint4*)piece.from;
            to[k] = (uint4*)piece.to;
            units[k] = (uint)(piece.nbytes / 16);
            most = max(most, units[k]);
        }
        for (uint unit = lane; unit < most; unit += job.lanes) {
            uint4 held[PIECES_IN_FLIGHT];
            #pragma unroll
            for (uint k = 0; k < PIECES_IN_FLIGHT; k++) if (unit < units[k]) held[k] = from[k][unit];
            #pragma unroll
            for (uint k = 0; k < PIECES_IN_FLIGHT; k++) if (unit < units[k]) to[k][unit] = held[k];
        }
    }
}

extern "C" __global__ void gather_unaligned(GatherJob job) {
    uint lane = threadIdx.x % job.lanes, own = blockDim.x / job.lanes;
    uint teams = gridDim.x * own, turns = job.count * job.pieces;
    for (uint turn = blockIdx.x * own + threadIdx.x / job.lanes; turn < turns; turn += teams) {
        Piece piece = piece_at(job, turn);
        copy_unaligned(piece.to, piece.from, piece.nbytes, lane, job.lanes);
    }
}

// Gathers long rows inside device memory with Hopper's bulk copies, which pass through shared memory and not through
// registers. One thread per block keeps a few copies in flight, so the multiprocessors stay free for the consumer's
// kernels. All addresses and lengths are multiples of 16.
#if __CUDA_ARCH__ >= 900

const uint STAGES = 4, STAGE_NBYTES = 8192;   // the maximum size of a piece

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
    uint turns = job.count * job.pieces, next = blockIdx.x, read = 0, written = 0;
    for (; read < STAGES - 1 && next < turns; read++, next += gridDim.x)
        begin_read(piece_at(job, next), stages[read], &arrivals[read]);
    for (uint turn = blockIdx.x; turn < turns; turn += gridDim.x, written++) {
        uint k = written % STAGES;
        wait_for_read(&arrivals[k], written / STAGES % 2);
        begin_write(piece_at(job, turn), stages[k]);
        if (next >= turns) continue;
        // The next read goes into the stage of the write one turn ago. Wait until all writes but the last have read theirs.
        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        begin_read(piece_at(job, next), stages[read % STAGES], &arrivals[read % STAGES]);
        read++, next += gridDim.x;
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#endif

// Converts contiguous 64-bit numbers to 32 bits, from a separate buffer into the slot, for frameworks that hold 32 bits.
// Integers keep their lower 32 bits, as in NumPy.

struct NarrowJob {
    const ulong64* source;
    byte* out;                // number i goes to out + (i / batch_numbers) * batch_stride + (i % batch_numbers) * 4
    long long batch_stride;
    ulong64 batch_numbers;
    ulong64 count;
    uint is_float;            // float64, else int64
};

extern "C" __global__ void narrow_numbers(NarrowJob job) {
    for (ulong64 i = blockIdx.x * (ulong64)blockDim.x + threadIdx.x; i < job.count; i += gridDim.x * (ulong64)blockDim.x) {
        uint* to = (uint*)(job.out + (long long)(i / job.batch_numbers) * job.batch_stride) + i % job.batch_numbers;
        ulong64 number = job.source[i];
        *to = job.is_float ? __float_as_uint((float)__longlong_as_double((long long)number)) : (uint)number;
    }
}

// Computes the row numbers of a shuffled order, so that the host need not upload them. The order is a pure function of
// the position.

const uint ROUNDS = 5;

struct PermuteJob {
    void* rows;             // out
    ulong64 first, step;    // positions: first, first + step, ...
    ulong64 length, mask, term, factors[ROUNDS];
    uint shift;
    uint count;
    uint needs_int64;
};

extern "C" __global__ void permute_rows(PermuteJob job) {
    for (uint i = blockIdx.x * blockDim.x + threadIdx.x; i < job.count; i += gridDim.x * blockDim.x) {
        ulong64 number = job.first + i * job.step;
        do {
            number += job.term;
            for (uint round = 0; round < ROUNDS; round++) {
                number = number * job.factors[round] & job.mask;
                number ^= number >> job.shift;
            }
        } while (number >= job.length);
        if (job.needs_int64) ((long long*)job.rows)[i] = (long long)number;
        else ((int*)job.rows)[i] = (int)number;
    }
}

// Sorts rows coarsely by address, because random reads over the host link are slow. A bucket is a part of the source; the
// gather kernel reads all rows of a bucket together. Sorting changes when a row is read, not where it is written.

const uint MAX_BUCKETS = 4096;

struct SortJob {
    const void* rows;
    uint* order;        // out: indices into `rows`, bucket by bucket
    uint* starts;       // MAX_BUCKETS counters, zero before the first kernel
    uint count;
    uint needs_int64;
    uint shift;         // a bucket has 2^shift rows of the source
    uint buckets;
};

__device__ __forceinline__ uint bucket_of(const SortJob& job, uint i) {
    return (uint)((job.needs_int64 ? ((const long long*)job.rows)[i] : (long long)((const int*)job.rows)[i]) >> job.shift);
}

extern "C" __global__ void count_buckets(SortJob job) {
    __shared__ uint counts[MAX_BUCKETS];
    for (uint s = threadIdx.x; s < job.buckets; s += blockDim.x) counts[s] = 0;
    __syncthreads();
    for (uint i = blockIdx.x * blockDim.x + threadIdx.x; i < job.count; i += gridDim.x * blockDim.x)
        atomicAdd(&counts[bucket_of(job, i)], 1u);
    __syncthreads();
    for (uint s = threadIdx.x; s < job.buckets; s += blockDim.x)
        if (counts[s]) atomicAdd(&job.starts[s], counts[s]);
}

// One block of 1024 threads turns the counts into the index where each bucket starts.
extern "C" __global__ void start_buckets(SortJob job) {
    __shared__ uint sums[1024];
    uint t = threadIdx.x, each = MAX_BUCKETS / 1024, own[MAX_BUCKETS / 1024], total = 0;
    for (uint k = 0; k < each; k++) {
        uint s = t * each + k;
        own[k] = s < job.buckets ? job.starts[s] : 0;
        total += own[k];
    }
    sums[t] = total;
    __syncthreads();
    for (uint step = 1; step < 1024; step *= 2) {
        uint before = t >= step ? sums[t - step] : 0;
        __syncthreads();
        sums[t] += before;
        __syncthreads();
    }
    uint start = sums[t] - total;
    for (uint k = 0; k < each; k++) {
        uint s = t * each + k;
        if (s < job.buckets) job.starts[s] = start;
        start += own[k];
    }
}

extern "C" __global__ void order_rows(SortJob job) {
    for (uint i = blockIdx.x * blockDim.x + threadIdx.x; i < job.count; i += gridDim.x * blockDim.x)
        job.order[atomicAdd(&job.starts[bucket_of(job, i)], 1u)] = i;
}

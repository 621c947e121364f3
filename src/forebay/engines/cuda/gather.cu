// Rows, wherever they lie, to their places in a slot. Compiled on the user's own GPU.
//
// A row is copied by a team of neighbouring threads (a warp, or fewer for short rows). Few blocks suffice to fill the
// link: what reads page-locked memory waits for it most of the time, and leaves the rest of the GPU alone.

typedef unsigned char byte;
typedef unsigned int uint;
typedef unsigned long long ulong64;

// Rows from `first` on lie at `base + row * stride`, in host or device memory.
struct Extent {
    long long first;
    const byte* base;
    long long stride;
};

struct Gather {
    const void* rows;         // row numbers, `wide_rows` ? 8 : 4 bytes each
    const uint* order;        // which of them to take first, second, ...; null: as they stand
    const Extent* extents;    // by their first rows
    byte* out;                // row i goes to out + (i / batch_rows) * batch_stride + (i % batch_rows) * row_nbytes
    long long row_nbytes;
    long long batch_stride;
    uint batch_rows;
    uint count;
    uint extent_count;
    uint wide_rows;
    uint lanes;               // threads of a team: a power of two up to 32
    uint pieces;              // teams a row is shared among
    uint piece_nbytes;        // a multiple of sixteen, where rows are
};

__device__ __forceinline__ long long row_at(const Gather& job, uint i) {
    return job.wide_rows ? ((const long long*)job.rows)[i] : (long long)((const int*)job.rows)[i];
}

__device__ __forceinline__ const byte* address_of(const Gather& job, long long row) {
    uint low = 0, high = job.extent_count;
    while (high - low > 1) {
        uint middle = (low + high) / 2;
        if (job.extents[middle].first <= row) low = middle; else high = middle;
    }
    return job.extents[low].base + row * job.extents[low].stride;
}

__device__ __forceinline__ byte* place_of(const Gather& job, uint i) {
    return job.out + (long long)(i / job.batch_rows) * job.batch_stride + (long long)(i % job.batch_rows) * job.row_nbytes;
}

// Any address, any length: whole words of the target, each put together from the two words of the source it lies in.
// A word is read only if a byte of it is wanted, so nothing beyond the row's own page is touched.
__device__ __forceinline__ void copy_any(byte* to, const byte* from, long long nbytes, uint lane, uint lanes) {
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

__device__ __forceinline__ Piece piece_at(const Gather& job, uint turn) {
    uint place = turn / job.pieces;
    long long start = (long long)(turn % job.pieces) * job.piece_nbytes;
    uint i = job.order ? job.order[place] : place;
    return {address_of(job, row_at(job, i)) + start, place_of(job, i) + start,
            min((long long)job.piece_nbytes, job.row_nbytes - start)};
}

// Sixteen bytes a thread at a time: everything is a multiple of sixteen. A team reads several pieces at once, because
// a read over the link takes a microsecond and more, and only what is under way in the meantime hides that.
const uint AT_ONCE = 8;

extern "C" __global__ void gather_wide(Gather job) {
    uint lane = threadIdx.x % job.lanes, own = blockDim.x / job.lanes;
    uint teams = gridDim.x * own, turns = job.count * job.pieces;
    for (uint turn = blockIdx.x * own + threadIdx.x / job.lanes; turn < turns; turn += teams * AT_ONCE) {
        const uint4* from[AT_ONCE];
        uint4* to[AT_ONCE];
        uint units[AT_ONCE], most = 0;
        #pragma unroll
        for (uint k = 0; k < AT_ONCE; k++) {
            units[k] = 0;
            if (turn + k * teams >= turns) continue;
            Piece piece = piece_at(job, turn + k * teams);
            from[k] = (const uint4*)piece.from;
            to[k] = (uint4*)piece.to;
            units[k] = (uint)(piece.nbytes / 16);
            most = max(most, units[k]);
        }
        for (uint unit = lane; unit < most; unit += job.lanes) {
            uint4 held[AT_ONCE];
            #pragma unroll
            for (uint k = 0; k < AT_ONCE; k++) if (unit < units[k]) held[k] = from[k][unit];
            #pragma unroll
            for (uint k = 0; k < AT_ONCE; k++) if (unit < units[k]) to[k][unit] = held[k];
        }
    }
}

extern "C" __global__ void gather_any(Gather job) {
    uint lane = threadIdx.x % job.lanes, own = blockDim.x / job.lanes;
    uint teams = gridDim.x * own, turns = job.count * job.pieces;
    for (uint turn = blockIdx.x * own + threadIdx.x / job.lanes; turn < turns; turn += teams) {
        Piece piece = piece_at(job, turn);
        copy_any(piece.to, piece.from, piece.nbytes, lane, job.lanes);
    }
}

// Long rows inside device memory, by Hopper's bulk copies: through shared memory, without registers. One thread of a block
// keeps a few of them under way, so that whoever computes keeps the processors. As above, all is a multiple of sixteen.
#if __CUDA_ARCH__ >= 900

const uint STAGES = 4, STAGE_NBYTES = 8192;   // the most a piece has

__device__ __forceinline__ uint in_shared(const void* pointer) { return (uint)__cvta_generic_to_shared(pointer); }

__device__ __forceinline__ void begin_read(const Piece& piece, byte* stage, ulong64* arrival) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(in_shared(arrival)), "r"((uint)piece.nbytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(in_shared(stage)), "l"(piece.from), "r"((uint)piece.nbytes), "r"(in_shared(arrival)) : "memory");
}

__device__ __forceinline__ void await(ulong64* arrival, uint parity) {
    asm volatile("{ .reg .pred there; again: mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1; @!there bra again; }"
                 :: "r"(in_shared(arrival)), "r"(parity) : "memory");
}

__device__ __forceinline__ void begin_write(const Piece& piece, const byte* stage) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :: "l"(piece.to), "r"(in_shared(stage)), "r"((uint)piece.nbytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;");
}

extern "C" __global__ void gather_bulk(Gather job) {
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
        await(&arrivals[k], written / STAGES % 2);
        begin_write(piece_at(job, turn), stages[k]);
        if (next >= turns) continue;
        // The stage that is read into next was written from one turn ago: all but the last write have left theirs.
        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        begin_read(piece_at(job, next), stages[read % STAGES], &arrivals[read % STAGES]);
        read++, next += gridDim.x;
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#endif

// What a framework holds in half the bytes is narrowed on its way into the slot: 64-bit numbers that have arrived side
// by side beside it. Whole ones keep their lower half, as everywhere.

struct Narrow {
    const ulong64* from;
    byte* out;                // number i goes to out + (i / batch_numbers) * batch_stride + (i % batch_numbers) * 4
    long long batch_stride;
    ulong64 batch_numbers;
    ulong64 count;
    uint real;                // double precision, or whole numbers
};

extern "C" __global__ void narrow_numbers(Narrow job) {
    for (ulong64 i = blockIdx.x * (ulong64)blockDim.x + threadIdx.x; i < job.count; i += gridDim.x * (ulong64)blockDim.x) {
        uint* to = (uint*)(job.out + (long long)(i / job.batch_numbers) * job.batch_stride) + i % job.batch_numbers;
        ulong64 number = job.from[i];
        *to = job.real ? __float_as_uint((float)__longlong_as_double((long long)number)) : (uint)number;
    }
}

// Row numbers of a shuffled order, which is a pure function: computed here, they need not be brought.

const uint ROUNDS = 5;

struct Draw {
    void* rows;             // out
    ulong64 first, step;    // positions: first, first + step, ...
    ulong64 length, mask, term, factors[ROUNDS];
    uint shift;
    uint count;
    uint wide_rows;
};

extern "C" __global__ void draw_rows(Draw job) {
    for (uint i = blockIdx.x * blockDim.x + threadIdx.x; i < job.count; i += gridDim.x * blockDim.x) {
        ulong64 number = job.first + i * job.step;
        do {
            number += job.term;
            for (uint round = 0; round < ROUNDS; round++) {
                number = number * job.factors[round] & job.mask;
                number ^= number >> job.shift;
            }
        } while (number >= job.length);
        if (job.wide_rows) ((long long*)job.rows)[i] = (long long)number;
        else ((int*)job.rows)[i] = (int)number;
    }
}

// Coarse order by address: rows of one stretch of the source side by side, so that reads over the link are not random.
// What comes out differs only in when a row is read, never in where it goes.

const uint MOST_STRETCHES = 4096;

struct Sort {
    const void* rows;
    uint* order;        // out: the places of the rows, stretch by stretch
    uint* starts;       // MOST_STRETCHES counters, zero at first
    uint count;
    uint wide_rows;
    uint shift;         // a stretch has 2^shift rows
    uint stretches;
};

__device__ __forceinline__ uint stretch_of(const Sort& job, uint i) {
    return (uint)((job.wide_rows ? ((const long long*)job.rows)[i] : (long long)((const int*)job.rows)[i]) >> job.shift);
}

extern "C" __global__ void count_stretches(Sort job) {
    __shared__ uint counts[MOST_STRETCHES];
    for (uint s = threadIdx.x; s < job.stretches; s += blockDim.x) counts[s] = 0;
    __syncthreads();
    for (uint i = blockIdx.x * blockDim.x + threadIdx.x; i < job.count; i += gridDim.x * blockDim.x)
        atomicAdd(&counts[stretch_of(job, i)], 1u);
    __syncthreads();
    for (uint s = threadIdx.x; s < job.stretches; s += blockDim.x)
        if (counts[s]) atomicAdd(&job.starts[s], counts[s]);
}

// One block of 1024 threads: counts become the places where stretches start.
extern "C" __global__ void start_stretches(Sort job) {
    __shared__ uint sums[1024];
    uint t = threadIdx.x, each = MOST_STRETCHES / 1024, own[MOST_STRETCHES / 1024], total = 0;
    for (uint k = 0; k < each; k++) {
        uint s = t * each + k;
        own[k] = s < job.stretches ? job.starts[s] : 0;
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
        if (s < job.stretches) job.starts[s] = start;
        start += own[k];
    }
}

extern "C" __global__ void place_rows(Sort job) {
    for (uint i = blockIdx.x * blockDim.x + threadIdx.x; i < job.count; i += gridDim.x * blockDim.x)
        job.order[atomicAdd(&job.starts[stretch_of(job, i)], 1u)] = i;
}

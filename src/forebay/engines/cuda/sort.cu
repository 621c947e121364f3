// Sorts rows coarsely by address, because random reads over the host link are slow. A bucket is a part of the source.
// The gather kernel reads all rows of one bucket, then those of the next bucket. Sorting changes when the gather kernel
// reads a row, not where it writes the row. Three kernels run one after the other: `count_buckets`, `start_buckets` and
// `order_rows`.

const uint MAX_BUCKETS = 4096;

struct SortJob {
    const void* rows;   // row numbers, int64 if `needs_int64`, else int32
    uint* order;        // output: indices into `rows`, bucket by bucket
    uint* starts;       // MAX_BUCKETS counters, zero before the first kernel
    uint count;         // number of row numbers
    uint needs_int64;
    uint shift;         // a bucket has 2^shift rows of the source
    uint buckets;       // number of buckets, at most MAX_BUCKETS
};

__device__ __forceinline__ uint bucket_of(const SortJob& job, uint i) {
    return (uint)((job.needs_int64 ? ((const long long*)job.rows)[i] : (long long)((const int*)job.rows)[i]) >> job.shift);
}

// Stores the number of rows of each bucket in `starts`.
extern "C" __global__ void count_buckets(SortJob job) {
    __shared__ uint counts[MAX_BUCKETS];
    for (uint bucket = threadIdx.x; bucket < job.buckets; bucket += blockDim.x) counts[bucket] = 0;
    __syncthreads();
    for (uint i = blockIdx.x * blockDim.x + threadIdx.x; i < job.count; i += gridDim.x * blockDim.x)
        atomicAdd(&counts[bucket_of(job, i)], 1u);
    __syncthreads();
    for (uint bucket = threadIdx.x; bucket < job.buckets; bucket += blockDim.x)
        if (counts[bucket]) atomicAdd(&job.starts[bucket], counts[bucket]);
}

// Replaces each count in `starts` by the index in `order` where the bucket starts. Runs with one block of 1024 threads.
extern "C" __global__ void start_buckets(SortJob job) {
    __shared__ uint sums[1024];
    const uint thread_buckets = MAX_BUCKETS / 1024;  // buckets per thread
    uint thread = threadIdx.x, counts[thread_buckets], total = 0;
    for (uint k = 0; k < thread_buckets; k++) {
        uint bucket = thread * thread_buckets + k;
        counts[k] = bucket < job.buckets ? job.starts[bucket] : 0;
        total += counts[k];
    }
    sums[thread] = total;
    __syncthreads();
    for (uint distance = 1; distance < 1024; distance *= 2) {  // prefix sums over all threads
        uint addend = thread >= distance ? sums[thread - distance] : 0;
        __syncthreads();
        sums[thread] += addend;
        __syncthreads();
    }
    uint start = sums[thread] - total;
    for (uint k = 0; k < thread_buckets; k++) {
        uint bucket = thread * thread_buckets + k;
        if (bucket < job.buckets) job.starts[bucket] = start;
        start += counts[k];
    }
}

// Stores the index of each row in `order`, and changes `starts` to the index in `order` where each bucket ends.
extern "C" __global__ void order_rows(SortJob job) {
    for (uint i = blockIdx.x * blockDim.x + threadIdx.x; i < job.count; i += gridDim.x * blockDim.x)
        job.order[atomicAdd(&job.starts[bucket_of(job, i)], 1u)] = i;
}

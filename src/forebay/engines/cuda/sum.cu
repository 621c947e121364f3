// Reads a range of memory once and adds the sum of its 64-bit words, modulo 2^64, to `*total`. `forebay bench` uses
// this kernel as a consumer that reads batches at the speed of device memory.

typedef unsigned long long ulong64;

struct SumJob {
    const ulonglong2* pairs;    // pairs of 64-bit words
    ulong64 count;              // number of pairs
    ulong64* total;
};

extern "C" __global__ void sum_words(SumJob job) {
    ulong64 sum = 0, threads = (ulong64)gridDim.x * blockDim.x, i = (ulong64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * threads < job.count; i += 4 * threads) {  // four reads in flight per thread hide the latency
        ulonglong2 pairs[4];
        #pragma unroll
        for (int k = 0; k < 4; k++) pairs[k] = job.pairs[i + k * threads];
        #pragma unroll
        for (int k = 0; k < 4; k++) sum += pairs[k].x + pairs[k].y;
    }
    for (; i < job.count; i += threads) sum += job.pairs[i].x + job.pairs[i].y;
    for (int distance = 16; distance; distance /= 2) sum += __shfl_down_sync(~0u, sum, distance);  // sum of the warp
    if (threadIdx.x % 32 == 0) atomicAdd(job.total, sum);
}

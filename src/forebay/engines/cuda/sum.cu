// Everything in some memory, read once: a sum that wraps around, added to a number.

typedef unsigned long long ulong64;

struct Sum {
    const ulonglong2* pairs;    // of words
    ulong64 count;              // of pairs
    ulong64* total;
};

extern "C" __global__ void sum_words(Sum job) {
    ulong64 sum = 0, step = (ulong64)gridDim.x * blockDim.x, at = (ulong64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; at + 3 * step < job.count; at += 4 * step) {  // several reads under way at once
        ulonglong2 held[4];
        #pragma unroll
        for (int k = 0; k < 4; k++) held[k] = job.pairs[at + k * step];
        #pragma unroll
        for (int k = 0; k < 4; k++) sum += held[k].x + held[k].y;
    }
    for (; at < job.count; at += step) sum += job.pairs[at].x + job.pairs[at].y;
    for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_down_sync(~0u, sum, lanes);
    if (threadIdx.x % 32 == 0) atomicAdd(job.total, sum);
}

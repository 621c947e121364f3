// An empty kernel, to measure the cost of a launch.

struct EmptyJob {
    int unused;
};

extern "C" __global__ void do_nothing(EmptyJob job) {}

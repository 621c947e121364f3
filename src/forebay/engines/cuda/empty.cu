// A kernel that does nothing: what launching one costs.

struct Nothing {
    int unused;
};

extern "C" __global__ void do_nothing(Nothing job) {}

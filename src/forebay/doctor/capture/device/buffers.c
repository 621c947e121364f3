// Buffers that CUPTI fills with records while a script runs, and a reader of these records.
//
// CUPTI calls the callbacks while it holds its own locks. A callback that took the interpreter lock could deadlock with
// a thread that holds the interpreter lock and waits for CUPTI. So nothing here calls Python. Python loads this library
// with ctypes and reads the records later.

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_NBYTES (4u << 20)
#define ALIGNMENT 8  // bytes; CUPTI requires it

// A buffer with records that CUPTI has returned. After a forced flush it may be partly filled.
typedef struct ReturnedBuffer {
    struct ReturnedBuffer* next;
    uint8_t* data;
    size_t valid;  // bytes that CUPTI has written
} ReturnedBuffer;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ReturnedBuffer* first = NULL;  // list of returned buffers, oldest first
static ReturnedBuffer** last = &first;
static size_t allocated = 0, limit = 256u << 20;  // bytes of all buffers: now, and at most
static uint64_t refused = 0;                      // buffers that the limit did not allow

// Sets the limit for all buffers together, in bytes.
void forebay_limit(size_t nbytes) {
    pthread_mutex_lock(&lock);
    limit = nbytes;
    pthread_mutex_unlock(&lock);
}

// Callback for cuptiActivityRegisterCallbacks: allocates a buffer. Without one, CUPTI drops records and counts them.
void forebay_buffer_requested(uint8_t** buffer, size_t* nbytes, size_t* records) {
    void* memory = NULL;
    pthread_mutex_lock(&lock);
    int allowed = allocated + BUFFER_NBYTES <= limit;
    if (allowed) allocated += BUFFER_NBYTES; else refused++;
    pthread_mutex_unlock(&lock);
    if (allowed && posix_memalign(&memory, ALIGNMENT, BUFFER_NBYTES)) {
        memory = NULL;
        pthread_mutex_lock(&lock);
        allocated -= BUFFER_NBYTES;
        pthread_mutex_unlock(&lock);
    }
    *buffer = memory;
    *nbytes = memory ? BUFFER_NBYTES : 0;
    *records = 0;
}

// Callback for cuptiActivityRegisterCallbacks: stores a returned buffer. Frees it if it has no records, or if there is
// no memory to store it.
void forebay_buffer_completed(void* context, uint32_t stream, uint8_t* buffer, size_t nbytes, size_t valid) {
    (void)context; (void)stream; (void)nbytes;
    ReturnedBuffer* returned = valid ? malloc(sizeof(ReturnedBuffer)) : NULL;
    if (!returned) {
        free(buffer);
        pthread_mutex_lock(&lock);
        if (buffer) allocated -= BUFFER_NBYTES;
        pthread_mutex_unlock(&lock);
        return;
    }
    returned->next = NULL;
    returned->data = buffer;
    returned->valid = valid;
    pthread_mutex_lock(&lock);
    *last = returned;
    last = &returned->next;
    pthread_mutex_unlock(&lock);
}

// Returns how many buffers the limit did not allow.
uint64_t forebay_refused(void) {
    pthread_mutex_lock(&lock);
    uint64_t count = refused;
    pthread_mutex_unlock(&lock);
    return count;
}

// The fields of a record that the doctor needs, in one layout for all kinds of records. The offsets of these fields in
// the structs of CUPTI are the same from CUPTI 12.1 to 13.4. Later fields differ, but CUPTI finds the next record.
typedef struct {
    uint64_t start, end;        // nanoseconds
    uint64_t nbytes;
    uint64_t name;              // of a kernel: pointer to the text
    uint32_t kind;              // CUPTI_ACTIVITY_KIND_*
    uint32_t what;              // direction of a copy, number of a call, type of a synchronisation, id of a graph
    uint32_t device, stream, correlation, thread;
    uint32_t grid[3], block[3];
    uint8_t source, target, flags, unused[5];
} Record;

enum { MEMCPY = 1, MEMSET = 2, KERNEL = 3, DRIVER = 4, RUNTIME = 5, CONCURRENT_KERNEL = 10,
       SYNCHRONIZATION = 38, GRAPH_TRACE = 51 };

// Read a number at a byte offset of a record. The offset may be unaligned.
static uint32_t u32(const uint8_t* record, size_t at) { uint32_t value; memcpy(&value, record + at, 4); return value; }
static uint64_t u64(const uint8_t* record, size_t at) { uint64_t value; memcpy(&value, record + at, 8); return value; }

static void read_times(Record* out, const uint8_t* record, size_t start) {
    out->start = u64(record, start);
    out->end = u64(record, start + 8);
}

// Copies the needed fields of a record. Returns 1, or 0 for a kind that the doctor does not read.
static int read_record(Record* out, const uint8_t* record) {
    memset(out, 0, sizeof *out);
    out->kind = u32(record, 0);
    switch (out->kind) {
    case MEMCPY:
        out->what = record[4];
        out->source = record[5];
        out->target = record[6];
        out->flags = record[7];  // the other fields have the offsets of a memset
        // fall through
    case MEMSET:
        out->nbytes = u64(record, 8);
        read_times(out, record, 16);
        out->device = u32(record, 32);
        out->stream = u32(record, 40);
        out->correlation = u32(record, 44);
        return 1;
    case KERNEL:
    case CONCURRENT_KERNEL:
        read_times(out, record, 16);
        out->device = u32(record, 40);
        out->stream = u32(record, 48);
        for (int axis = 0; axis < 3; axis++) {
            out->grid[axis] = u32(record, 52 + 4 * axis);
            out->block[axis] = u32(record, 64 + 4 * axis);
        }
        out->correlation = u32(record, 92);
        out->name = u64(record, 104);
        return 1;
    case DRIVER:
    case RUNTIME:
        out->what = u32(record, 4);
        read_times(out, record, 8);
        out->thread = u32(record, 28);
        out->correlation = u32(record, 32);
        return 1;
    case SYNCHRONIZATION:
        out->what = u32(record, 4);
        read_times(out, record, 8);
        out->correlation = u32(record, 24);
        out->stream = u32(record, 32);
        return 1;
    case GRAPH_TRACE:
        out->correlation = u32(record, 4);
        read_times(out, record, 8);
        out->device = u32(record, 24);
        out->what = u32(record, 28);
        out->stream = u32(record, 36);
        return 1;
    default:
        return 0;
    }
}

typedef int (*NextRecord)(uint8_t* buffer, size_t valid, uint8_t** record);

// Reads the known records of the oldest returned buffer and frees the buffer. Returns the number of records;
// -1: there is no buffer; -2: there are more than `capacity` records, and the buffer is kept.
long forebay_read(NextRecord next, Record* out, size_t capacity) {
    pthread_mutex_lock(&lock);
    ReturnedBuffer* returned = first;
    pthread_mutex_unlock(&lock);
    if (!returned) return -1;
    size_t count = 0;
    uint8_t* record = NULL;
    while (next(returned->data, returned->valid, &record) == 0) {
        if (count == capacity) return -2;
        count += read_record(&out[count], record);
    }
    pthread_mutex_lock(&lock);
    first = returned->next;
    if (!first) last = &first;
    allocated -= BUFFER_NBYTES;
    pthread_mutex_unlock(&lock);
    free(returned->data);
    free(returned);
    return (long)count;
}

size_t forebay_record_nbytes(void) { return sizeof(Record); }
size_t forebay_buffer_nbytes(void) { return BUFFER_NBYTES; }

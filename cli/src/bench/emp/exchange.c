/* The exchanges of `outboard bench emp` as an MPI program of two ranks: exchange WINDOW_US PATTERN...
   PATTERN is pingpong:BYTES, stream:BYTES:DEPTH or overlap:BYTES:WORK_US. Rank 0 prints a line for
   each: PATTERN COUNT SECONDS CPU SEND RECEIVE WAIT, times in seconds. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH_MAX = 64, BATCH = 5, FIRST_COUNT = 8, TAG = 1, COUNT_TAG = 2 };

enum kind { PINGPONG, STREAM, OVERLAP };

struct pattern {
    enum kind kind;
    size_t bytes;
    long depth;
    double work;
};

struct times {
    double seconds, cpu, send, receive, wait;
};

static int rank;
static unsigned char *out, *in[DEPTH_MAX];

static double clock_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static struct pattern parsed(const char *text)
{
    struct pattern pattern = { .depth = 1 };
    double last = 0;
    if (sscanf(text, "pingpong:%zu", &pattern.bytes) == 1) {
        pattern.kind = PINGPONG;
    } else if (sscanf(text, "stream:%zu:%ld", &pattern.bytes, &pattern.depth) == 2) {
        pattern.kind = STREAM;
    } else if (sscanf(text, "overlap:%zu:%lf", &pattern.bytes, &last) == 2) {
        pattern.kind = OVERLAP;
        pattern.depth = BATCH;
        pattern.work = last * 1e-6;
    } else {
        fail("no such pattern");
    }
    if (pattern.depth < 1 || pattern.depth > DEPTH_MAX)
        fail("depth out of range");
    return pattern;
}

/* Messages begin with the count of their phase and go on with bytes by place. */
static void fill(const struct pattern *pattern, uint64_t count)
{
    for (size_t place = 0; place < pattern->bytes; place++)
        out[place] = place < 8 ? (unsigned char)(count >> (8 * place)) : (unsigned char)(place * 7);
}

static void check(const struct pattern *pattern, long slots)
{
    for (long slot = 0; slot < slots; slot++)
        if (memcmp(in[slot], out, pattern->bytes) != 0)
            fail("a message differs from what was sent");
}

static void work(double seconds)
{
    double end = clock_of(CLOCK_THREAD_CPUTIME_ID) + seconds;
    while (seconds > 0 && clock_of(CLOCK_THREAD_CPUTIME_ID) < end)
        ;
}

static void send(const struct pattern *pattern)
{
    MPI_Send(out, (int)pattern->bytes, MPI_BYTE, !rank, TAG, MPI_COMM_WORLD);
}

static void receive(const struct pattern *pattern)
{
    MPI_Recv(in[0], (int)pattern->bytes, MPI_BYTE, !rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void stream(const struct pattern *pattern)
{
    MPI_Request requests[DEPTH_MAX];
    for (long slot = 0; slot < pattern->depth; slot++) {
        if (rank == 0)
            MPI_Isend(out, (int)pattern->bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[slot]);
        else
            MPI_Irecv(in[slot], (int)pattern->bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD,
                      &requests[slot]);
    }
    MPI_Waitall((int)pattern->depth, requests, MPI_STATUSES_IGNORE);
    /* The trailing reply. */
    if (rank == 0)
        MPI_Recv(in[0], 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(out, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
}

static void overlap(const struct pattern *pattern, struct times *times)
{
    MPI_Request requests[2 * BATCH];
    double begin = clock_of(CLOCK_MONOTONIC);
    for (int slot = 0; slot < BATCH; slot++)
        MPI_Irecv(in[slot], (int)pattern->bytes, MPI_BYTE, !rank, TAG, MPI_COMM_WORLD,
                  &requests[slot]);
    double posted = clock_of(CLOCK_MONOTONIC);
    for (int slot = 0; slot < BATCH; slot++)
        MPI_Isend(out, (int)pattern->bytes, MPI_BYTE, !rank, TAG, MPI_COMM_WORLD,
                  &requests[BATCH + slot]);
    double sent = clock_of(CLOCK_MONOTONIC);
    work(pattern->work);
    double worked = clock_of(CLOCK_MONOTONIC);
    MPI_Waitall(2 * BATCH, requests, MPI_STATUSES_IGNORE);
    times->receive += posted - begin;
    times->send += sent - posted;
    times->wait += clock_of(CLOCK_MONOTONIC) - worked;
}

static struct times phase(const struct pattern *pattern, uint64_t count)
{
    struct times times = { 0 };
    fill(pattern, count);
    double begin = clock_of(CLOCK_MONOTONIC), cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID);
    for (uint64_t done = 0; done < count; done++) {
        if (pattern->kind == STREAM) {
            stream(pattern);
        } else if (pattern->kind == OVERLAP) {
            overlap(pattern, &times);
        } else if (rank == 0) {
            send(pattern);
            receive(pattern);
        } else {
            receive(pattern);
            send(pattern);
        }
    }
    times.seconds = clock_of(CLOCK_MONOTONIC) - begin;
    times.cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    if (pattern->kind != STREAM || rank == 1)
        check(pattern, pattern->depth);
    return times;
}

/* A phase of `count` iterations on both ranks; rank 0 says how many, 0 ends the pattern. */
static struct times together(const struct pattern *pattern, uint64_t count)
{
    struct times none = { 0 };
    MPI_Send(&count, 1, MPI_UINT64_T, 1, COUNT_TAG, MPI_COMM_WORLD);
    return count == 0 ? none : phase(pattern, count);
}

static uint64_t for_seconds(double seconds, uint64_t count, struct times times)
{
    double more = seconds / times.seconds * (double)count;
    return more < FIRST_COUNT ? FIRST_COUNT : (uint64_t)more;
}

static void lead(const char *text, const struct pattern *pattern, double window)
{
    uint64_t count = FIRST_COUNT;
    struct times times = together(pattern, count);
    count = for_seconds(window / 4, count, times);
    times = together(pattern, count);
    count = for_seconds(window, count, times);
    times = together(pattern, count);
    together(pattern, 0);
    printf("%s %llu %.9f %.9f %.9f %.9f %.9f\n", text, (unsigned long long)count, times.seconds,
           times.cpu, times.send, times.receive, times.wait);
    fflush(stdout);
}

static void follow(const struct pattern *pattern)
{
    for (;;) {
        uint64_t count;
        MPI_Recv(&count, 1, MPI_UINT64_T, 0, COUNT_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (count == 0)
            return;
        phase(pattern, count);
    }
}

int main(int argc, char **argv)
{
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2 || argc < 3)
        fail("two ranks, a window and patterns are wanted");
    double window = atof(argv[1]) * 1e-6;
    for (int at = 2; at < argc; at++) {
        struct pattern pattern = parsed(argv[at]);
        out = malloc(pattern.bytes + 1);
        for (long slot = 0; slot < pattern.depth; slot++)
            in[slot] = malloc(pattern.bytes + 1);
        if (rank == 0)
            lead(argv[at], &pattern, window);
        else
            follow(&pattern);
        free(out);
        for (long slot = 0; slot < pattern.depth; slot++)
            free(in[slot]);
    }
    MPI_Finalize();
    return 0;
}

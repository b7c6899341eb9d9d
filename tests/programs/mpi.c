/* What MPI programs do, checked: a ring, wildcard receives, probes, long messages, collectives.
   Each rank says "rank N of M is right", or what was wrong. With an argument, ranks exchange messages
   until they are killed. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "rank %d: line %d: not %s\n", rank, __LINE__,    \
                    #condition);                                             \
            MPI_Abort(MPI_COMM_WORLD, 1);                                    \
        }                                                                    \
    } while (0)

static unsigned char byte_of(int from, size_t place)
{
    return (unsigned char)(from * 31 + place * 7 + (place >> 11));
}

static unsigned char *filled(int from, size_t bytes)
{
    unsigned char *message = malloc(bytes + 1);
    for (size_t place = 0; place < bytes; place++)
        message[place] = byte_of(from, place);
    return message;
}

static int is_filled(const unsigned char *message, int from, size_t bytes)
{
    for (size_t place = 0; place < bytes; place++)
        if (message[place] != byte_of(from, place))
            return 0;
    return 1;
}

static void ring(void)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size, token = 0;
    for (int lap = 0; lap < 50; lap++) {
        if (rank == 0) {
            MPI_Send(&token, 1, MPI_INT, next, lap, MPI_COMM_WORLD);
            MPI_Recv(&token, 1, MPI_INT, before, lap, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(token == (lap + 1) * (size - 1));
        } else {
            MPI_Recv(&token, 1, MPI_INT, before, lap, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            token++;
            MPI_Send(&token, 1, MPI_INT, next, lap, MPI_COMM_WORLD);
        }
    }
}

/* Every rank sends to rank 0, which takes what comes, in the order of each sender. */
static void wildcards(void)
{
    enum { EACH = 100 };
    if (rank != 0) {
        for (int number = 0; number < EACH; number++)
            MPI_Send(&number, 1, MPI_INT, 0, number % 3, MPI_COMM_WORLD);
        return;
    }
    int *next = calloc(size, sizeof *next);
    for (int got = 0; got < EACH * (size - 1); got++) {
        int number, count;
        MPI_Status status;
        MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(count == 1);
        CHECK(status.MPI_TAG == number % 3);
        CHECK(next[status.MPI_SOURCE]++ == number);
    }
    free(next);
}

/* Messages whose length the receiver learns by a probe, taken in another order than sent. */
static void probes(void)
{
    static const int lengths[] = {0, 1, 4096, 16384, 100000};
    enum { COUNT = sizeof lengths / sizeof *lengths };
    int other = rank ^ 1;
    if (other >= size)
        return;
    MPI_Request requests[COUNT];
    unsigned char *sent[COUNT];
    for (int each = 0; each < COUNT; each++) {
        sent[each] = filled(rank, lengths[each]);
        MPI_Isend(sent[each], lengths[each], MPI_BYTE, other, 1000 + each, MPI_COMM_WORLD,
                  &requests[each]);
    }
    for (int each = COUNT - 1; each >= 0; each--) {
        MPI_Status status;
        MPI_Message message;
        int length;
        if (each % 2)
            MPI_Probe(other, 1000 + each, MPI_COMM_WORLD, &status);
        else
            MPI_Mprobe(other, 1000 + each, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_BYTE, &length);
        CHECK(length == lengths[each]);
        unsigned char *room = malloc(length + 1);
        if (each % 2)
            MPI_Recv(room, length, MPI_BYTE, other, 1000 + each, MPI_COMM_WORLD, &status);
        else
            MPI_Mrecv(room, length, MPI_BYTE, &message, &status);
        CHECK(is_filled(room, other, length));
        free(room);
    }
    int flag = 1;
    MPI_Iprobe(MPI_ANY_SOURCE, 4711, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
    for (int each = 0; each < COUNT; each++)
        free(sent[each]);
}

/* Long messages both ways at once, some of them before their receive is posted. */
static void long_messages(void)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (size_t bytes = 1 << 15; bytes <= 1 << 22; bytes <<= 1) {
        unsigned char *sent = filled(rank, bytes), *room = malloc(bytes);
        MPI_Request request;
        MPI_Isend(sent, (int)bytes, MPI_BYTE, next, 7, MPI_COMM_WORLD, &request);
        MPI_Recv(room, (int)bytes, MPI_BYTE, before, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(is_filled(room, before, bytes));
        free(sent);
        free(room);
    }
}

static void cancels(void)
{
    int number, is_cancelled;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 9999, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &is_cancelled);
    CHECK(is_cancelled);
}

static void collectives(void)
{
    int sum, number = rank;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == size * (size - 1) / 2);
    enum { BYTES = 200000 };
    unsigned char *message = filled(3, BYTES);
    if (rank != 1 % size)
        memset(message, 0, BYTES);
    MPI_Bcast(message, BYTES, MPI_BYTE, 1 % size, MPI_COMM_WORLD);
    CHECK(is_filled(message, 3, BYTES));
    free(message);
    int *sent = malloc(size * sizeof *sent), *got = malloc(size * sizeof *got);
    for (int each = 0; each < size; each++)
        sent[each] = rank * 1000 + each;
    MPI_Alltoall(sent, 1, MPI_INT, got, 1, MPI_INT, MPI_COMM_WORLD);
    for (int each = 0; each < size; each++)
        CHECK(got[each] == each * 1000 + rank);
    free(sent);
    free(got);
}

/* Until one of the ranks is killed. */
static void forever(void)
{
    enum { LONGEST = 1 << 20 };
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    char *sent = calloc(1, LONGEST), *room = malloc(LONGEST);
    printf("rank %d is process %d\n", rank, (int)getpid());
    fflush(stdout);
    for (int bytes = 1;; bytes = bytes < LONGEST ? bytes * 2 : 1)
        MPI_Sendrecv(sent, bytes, MPI_BYTE, next, 7, room, LONGEST, MPI_BYTE, before, 7,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1)
        forever();
    ring();
    wildcards();
    MPI_Barrier(MPI_COMM_WORLD);
    probes();
    long_messages();
    cancels();
    collectives();
    printf("rank %d of %d is right\n", rank, size);
    MPI_Finalize();
    return 0;
}

/* The least that a byte ring can be, which the rings of raw endpoints are measured against: a word with
   the length before each block, a published position each way, and nothing that is checked or counted.
   ring PRODUCER_CORE CONSUMER_CORE BLOCK_BYTES MILLISECONDS prints BLOCKS SECONDS. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RING_BYTES = 1 << 20, ALIGN = 64, BURST = 64, SPINS = 2000 };

/* What stands for the rest of the ring, instead of a length. */
#define WRAP UINT64_MAX

static _Alignas(ALIGN) unsigned char ring[RING_BYTES];
static _Alignas(ALIGN) _Atomic uint64_t tail;
static _Alignas(ALIGN) _Atomic uint64_t head;
static _Alignas(ALIGN) atomic_int stop;
static size_t block_bytes;
static double window;
static int cores[2];

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set)) {
        perror("sched_setaffinity");
        exit(1);
    }
}

/* The other side may be on the same core. */
static void wait_more(unsigned *spins)
{
    if (++*spins % SPINS)
        __builtin_ia32_pause();
    else
        sched_yield();
}

static uint64_t message_bytes(uint64_t len)
{
    return (sizeof(uint64_t) + len + ALIGN - 1) / ALIGN * ALIGN;
}

static void *produce(void *unused)
{
    (void)unused;
    pin(cores[0]);
    unsigned char *block = malloc(block_bytes);
    if (!block)
        exit(1);
    memset(block, 0x5a, block_bytes);
    uint64_t own_tail = 0, known_head = 0, need = message_bytes(block_bytes);
    unsigned spins = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        int pushed = 0;
        for (; pushed < BURST; pushed++) {
            uint64_t rest = RING_BYTES - own_tail % RING_BYTES;
            uint64_t skip = need > rest ? rest : 0;
            if (own_tail + skip + need - known_head > RING_BYTES) {
                known_head = atomic_load_explicit(&head, memory_order_acquire);
                if (own_tail + skip + need - known_head > RING_BYTES)
                    break;
            }
            if (skip)
                *(uint64_t *)(ring + own_tail % RING_BYTES) = WRAP;
            unsigned char *at = ring + (own_tail + skip) % RING_BYTES;
            *(uint64_t *)at = block_bytes;
            memcpy(at + sizeof(uint64_t), block, block_bytes);
            own_tail += skip + need;
        }
        if (pushed)
            atomic_store_explicit(&tail, own_tail, memory_order_release);
        else
            wait_more(&spins);
    }
    free(block);
    return NULL;
}

/* Passes a burst; how many blocks it had. */
static unsigned consume(uint64_t *own_head, uint64_t *known_tail)
{
    unsigned count = 0;
    while (count < BURST) {
        if (*own_head == *known_tail) {
            *known_tail = atomic_load_explicit(&tail, memory_order_acquire);
            if (*own_head == *known_tail)
                break;
        }
        uint64_t len = *(volatile uint64_t *)(ring + *own_head % RING_BYTES);
        if (len == WRAP) {
            *own_head += RING_BYTES - *own_head % RING_BYTES;
            continue;
        }
        *own_head += message_bytes(len);
        count++;
    }
    atomic_store_explicit(&head, *own_head, memory_order_release);
    return count;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    cores[0] = atoi(argv[1]);
    cores[1] = atoi(argv[2]);
    block_bytes = strtoul(argv[3], NULL, 10);
    window = strtoul(argv[4], NULL, 10) / 1e3;
    /* All pages are there before anything is measured. */
    memset(ring, 0, sizeof ring);
    pin(cores[1]);
    pthread_t producer;
    if (pthread_create(&producer, NULL, produce, NULL))
        return 1;
    uint64_t own_head = 0, known_tail = 0, count = 0;
    unsigned spins = 0;
    while (!consume(&own_head, &known_tail))
        wait_more(&spins);
    double begin = now();
    while (now() - begin < window || !count) {
        unsigned some = consume(&own_head, &known_tail);
        count += some;
        if (!some)
            wait_more(&spins);
    }
    double seconds = now() - begin;
    atomic_store_explicit(&stop, 1, memory_order_relaxed);
    pthread_join(producer, NULL);
    printf("%llu %.9f\n", (unsigned long long)count, seconds);
    return 0;
}

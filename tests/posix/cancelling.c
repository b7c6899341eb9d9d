/* Threads that are cancelled where they wait, and elsewhere: whether they end, what they have done, and
   that everybody else goes on. Prints the same on kernel sockets and under the library.
   Usage: cancelling PEER-ADDRESS PORT (of the program peer) */
#define _GNU_SOURCE
#include "probing.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/select.h>
#include <sys/syscall.h>

/* What a thread waits in. */
struct place {
    const char *name;
    ssize_t (*wait)(int fd);
    int (*make)(void);
};

/* One thread, from its start to what came of it. */
struct run {
    const struct place *place;
    int fd, type, disabled;
    atomic_int thread, cleaned, returned;
    ssize_t answer;
    int error;
};

static char room[1 << 20];

static ssize_t in_read(int fd) { return read(fd, room, 8); }
static ssize_t in_recv(int fd) { return recv(fd, room, 8, 0); }
static ssize_t in_waitall(int fd) { return recv(fd, room, sizeof room, MSG_WAITALL); }

static ssize_t in_recvmsg(int fd) {
    struct iovec part = {room, 8};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    return recvmsg(fd, &message, 0);
}

/* The last of them finds no room. */
static ssize_t in_send(int fd) {
    while (send(fd, room, sizeof room, 0) > 0) {}
    return -1;
}

static ssize_t in_write(int fd) {
    while (write(fd, room, sizeof room) > 0) {}
    return -1;
}

static ssize_t in_accept(int fd) { return accept(fd, NULL, NULL); }
static ssize_t in_poll(int fd) { return poll_one(fd, POLLIN, -1); }

static ssize_t in_ppoll(int fd) {
    struct pollfd entry = {fd, POLLIN, 0};
    sigset_t none;
    sigemptyset(&none);
    return ppoll(&entry, 1, NULL, &none);
}

static ssize_t in_select(int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, &set, NULL, NULL, NULL);
}

static ssize_t in_epoll_wait(int set) { return wait_one(set, -1); }

static ssize_t in_connect(int fd) {
    /* Nobody has this address. */
    struct sockaddr_in nobody = peer;
    nobody.sin_addr.s_addr = htonl((ntohl(peer.sin_addr.s_addr) & ~255u) | 250);
    return connect(fd, (struct sockaddr *)&nobody, sizeof nobody);
}

static int silent(void) { return open_to('q'); }

static int fresh(void) { return socket(AF_INET, SOCK_STREAM, 0); }

static int listener(void) {
    struct sockaddr_in here = {.sin_family = AF_INET};
    int fd = fresh();
    bind(fd, (struct sockaddr *)&here, sizeof here);
    listen(fd, 8);
    return fd;
}

static int datagrams(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    connect(fd, (struct sockaddr *)&peer, sizeof peer);
    return fd;
}

static int set_of_silent(void) {
    struct epoll_event event = {EPOLLIN, {0}};
    int set = epoll_create1(0);
    epoll_ctl(set, EPOLL_CTL_ADD, silent(), &event);
    return set;
}

static int empty_pipe(void) {
    int ends[2];
    pipe(ends);
    return ends[0];
}

static const struct place places[] = {
    {"read", in_read, silent}, {"recv", in_recv, silent}, {"recv all", in_waitall, silent},
    {"recvmsg", in_recvmsg, silent}, {"send", in_send, silent}, {"write", in_write, silent},
    {"accept", in_accept, listener}, {"poll", in_poll, silent}, {"ppoll", in_ppoll, silent},
    {"select", in_select, silent}, {"epoll_wait", in_epoll_wait, set_of_silent},
    {"connect", in_connect, fresh}, {"datagrams", in_recv, datagrams},
    {"listener in poll", in_poll, listener}, {"pipe", in_read, empty_pipe},
};

static void clean(void *argument) {
    struct run *run = argument;
    /* What handlers do: calls like any other, one of which waits. */
    poll_one(run->fd, POLLIN, 1);
    run->cleaned++;
}

static void *body(void *argument) {
    struct run *run = argument;
    int before;
    pthread_setcanceltype(run->type, &before);
    pthread_setcancelstate(run->disabled ? PTHREAD_CANCEL_DISABLE : PTHREAD_CANCEL_ENABLE, &before);
    pthread_cleanup_push(clean, run);
    run->thread = syscall(SYS_gettid);
    run->answer = run->place->wait(run->fd);
    run->error = errno;
    run->returned = 1;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
    pthread_testcancel();
    pthread_cleanup_pop(0);
    return NULL;
}

/* Waits until the thread sleeps in the kernel. */
static void until_blocked(struct run *run) {
    char path[64], line[256] = "";
    while (!run->thread) usleep(100);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", run->thread);
    for (int turn = 0; turn < 100000; turn++) {
        FILE *file = fopen(path, "r");
        char *at = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
        if (file) fclose(file);
        if (!at || at[2] == 'S') return;
        usleep(100);
    }
}

/* What became of a thread: cancelled, or returned, or it is still there after ten seconds. */
static const char *end_of(pthread_t thread) {
    struct timespec until;
    void *told;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    if (pthread_timedjoin_np(thread, &told, &until)) return "waits for ever";
    return told == PTHREAD_CANCELED ? "cancelled" : "ended";
}

/* Whether a connection goes on to bring what was sent. */
static int echoes(int fd) {
    char byte = 0;
    return write(fd, "x", 1) == 1 && poll_one(fd, POLLIN, 5000) == POLLIN && recv(fd, &byte, 1, 0) == 1
        && byte == 'x';
}

static void waits(int type) {
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct run run = {&places[i], places[i].make(), type};
        pthread_t thread;
        pthread_create(&thread, NULL, body, &run);
        until_blocked(&run);
        pthread_cancel(thread);
        begin("%s: %s", places[i].name, end_of(thread));
        more(" cleaned %d returned %d", run.cleaned, run.returned);
        /* Nothing that it held is held any more. */
        more(" %s", bits(poll_one(run.fd, POLLIN, 0)));
        finish("%s", result(close(run.fd)));
    }
    int fd = open_to('e');
    say("others %d", echoes(fd));
    close(fd);
}

static void deferred(void) { waits(PTHREAD_CANCEL_DEFERRED); }
static void asynchronous(void) { waits(PTHREAD_CANCEL_ASYNCHRONOUS); }

/* Who does not let himself be cancelled waits on, and is when he does. */
static void disabled(void) {
    for (int type = PTHREAD_CANCEL_DEFERRED; type <= PTHREAD_CANCEL_ASYNCHRONOUS; type++) {
        struct place place = {"recv", in_recv, NULL};
        struct run run = {&place, open_to('e'), type, 1};
        pthread_t thread;
        pthread_create(&thread, NULL, body, &run);
        until_blocked(&run);
        pthread_cancel(thread);
        write(run.fd, "abc", 3);
        begin("%s", end_of(thread));
        finish(" returned %d with %zd", run.returned, run.answer);
        close(run.fd);
    }
}

struct pending {
    int fd, set;
    atomic_int is_ready, is_cancelled;
};

/* Is cancelled before it calls what would not wait. */
static void *late(void *argument) {
    struct pending *pending = argument;
    int on = 1;
    pending->is_ready = 1;
    while (!pending->is_cancelled) {}
    /* Not one of the calls at which a thread ends. */
    if (setsockopt(pending->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on)) return "failed";
    if (pending->set == 0) recv(pending->fd, room, 8, 0);
    if (pending->set == 1) send(pending->fd, "lost", 4, 0);
    if (pending->set == 2) poll_one(pending->fd, POLLOUT, 0);
    if (pending->set == 3) close(pending->fd);
    return "went on";
}

static void before_the_call(void) {
    for (int call = 0; call < 4; call++) {
        struct pending pending = {open_to('e'), call};
        pthread_t thread;
        write(pending.fd, "kept", 4);
        poll_one(pending.fd, POLLIN, 5000);
        pthread_create(&thread, NULL, late, &pending);
        while (!pending.is_ready) usleep(100);
        pthread_cancel(thread);
        pending.is_cancelled = 1;
        begin("%d %s", call, end_of(thread));
        ssize_t got = recv(pending.fd, room, 4, MSG_WAITALL);
        more(" then %zd %.4s", got, room);
        finish(" %d", echoes(pending.fd));
        close(pending.fd);
    }
}

static void *alone(void *argument) {
    pthread_cancel(pthread_self());
    recv(*(int *)argument, room, 8, 0);
    return NULL;
}

static void by_itself(void) {
    int fd = silent();
    pthread_t thread;
    pthread_create(&thread, NULL, alone, &fd);
    say("%s", end_of(thread));
    close(fd);
}

static atomic_int turns;

/* Never waits, so that it may be anywhere when it is cancelled. */
static void *busy(void *argument) {
    int fd = *(int *)argument, before;
    char byte;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    for (;;) {
        send(fd, "y", 1, MSG_DONTWAIT);
        recv(fd, &byte, 1, MSG_DONTWAIT);
        struct pollfd entry = {fd, POLLIN, 0};
        poll(&entry, 1, 0);
        turns++;
    }
    return NULL;
}

static void anywhere(void) {
    int ended = 0, works = 1;
    for (int turn = 0; turn < 100; turn++) {
        int fds[2] = {open_to('e'), socket(AF_UNIX, SOCK_DGRAM, 0)};
        pthread_t threads[2];
        int before = turns;
        for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, busy, &fds[i]);
        while (turns - before < 20 + turn % 7) sched_yield();
        for (int i = 0; i < 2; i++) pthread_cancel(threads[i]);
        for (int i = 0; i < 2; i++) ended += strcmp(end_of(threads[i]), "cancelled") == 0;
        char byte;
        works &= recv(fds[0], &byte, 1, MSG_DONTWAIT) >= -1 && poll_one(fds[0], POLLOUT, 5000) > 0;
        close(fds[0]);
        close(fds[1]);
    }
    say("ended %d works %d", ended, works);
}

/* Many wait for one socket, and one of them is cancelled. */
static void one_of_many(void) {
    struct place place = {"recv", in_recv, NULL};
    struct run runs[4];
    pthread_t threads[4];
    int fd = open_to('e');
    for (int i = 0; i < 4; i++) {
        runs[i] = (struct run){&place, fd};
        pthread_create(&threads[i], NULL, body, &runs[i]);
    }
    for (int i = 0; i < 4; i++) until_blocked(&runs[i]);
    pthread_cancel(threads[2]);
    begin("third %s", end_of(threads[2]));
    for (int i = 0; i < 4; i++) {
        if (i == 2) continue;
        int before = runs[0].returned + runs[1].returned + runs[3].returned;
        write(fd, "z", 1);
        while (runs[0].returned + runs[1].returned + runs[3].returned == before) usleep(100);
    }
    for (int i = 0; i < 4; i++)
        if (i != 2) more(" %s with %zd", end_of(threads[i]), runs[i].answer);
    finish("");
    close(fd);
}

/* Many wait by one set, and are cancelled one by one, and then all. */
static void by_one_set(void) {
    struct place place = {"epoll_wait", in_epoll_wait, NULL};
    struct run runs[8];
    pthread_t threads[8];
    int set = set_of_silent();
    for (int i = 0; i < 8; i++) {
        runs[i] = (struct run){&place, set};
        pthread_create(&threads[i], NULL, body, &runs[i]);
    }
    for (int i = 0; i < 8; i++) until_blocked(&runs[i]);
    begin("one by one");
    for (int i = 0; i < 4; i++) {
        pthread_cancel(threads[i]);
        more(" %s", end_of(threads[i]));
    }
    for (int i = 4; i < 8; i++) more(" %d", runs[i].returned);
    finish("");
    for (int i = 4; i < 8; i++) pthread_cancel(threads[i]);
    begin("all");
    for (int i = 4; i < 8; i++) more(" %s", end_of(threads[i]));
    finish("");
    close(set);
}

int main(int argc, char **argv) {
    const struct check checks[] = {
        {"deferred", deferred}, {"asynchronous", asynchronous}, {"disabled", disabled},
        {"before the call", before_the_call}, {"by itself", by_itself}, {"anywhere", anywhere},
        {"one of many", one_of_many},
        {"by one set", by_one_set},
    };
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}

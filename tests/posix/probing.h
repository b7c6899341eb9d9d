/* What the dual-run checks share: the peer, lines that say what was seen, and small helpers. A program
   that includes this defines _GNU_SOURCE first and is run as PROGRAM PEER-ADDRESS PORT. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

static struct sockaddr_in peer;
static const char *check;

UNUSED static void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("%s: ", check);
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
}

/* The same in parts, so that what they show is done in this order (C leaves the order of a call's
   arguments open). */
UNUSED static void begin(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("%s: ", check);
    vprintf(format, arguments);
    va_end(arguments);
}

UNUSED static void more(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
}

UNUSED static void finish(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
}

/* A result with its errno where it failed. */
UNUSED static const char *result(long value) {
    static char text[4][64];
    static int turn;
    char *place = text[turn = (turn + 1) % 4];
    if (value < 0) snprintf(place, 64, "%s", strerrorname_np(errno));
    else snprintf(place, 64, "%ld", value);
    return place;
}

UNUSED static const char *bits(int events) {
    static char text[4][64];
    static int turn;
    char *place = text[turn = (turn + 1) % 4];
    snprintf(place, 64, "%s%s%s%s%s%s", events & POLLIN ? "IN " : "", events & POLLPRI ? "PRI " : "",
             events & POLLOUT ? "OUT " : "", events & POLLERR ? "ERR " : "",
             events & POLLHUP ? "HUP " : "", events & POLLRDHUP ? "RDHUP " : "");
    return place;
}

UNUSED static int poll_one(int fd, int events, int ms) {
    struct pollfd entry = {fd, events, 0};
    int ready = poll(&entry, 1, ms);
    return ready < 0 ? -1 : ready == 0 ? 0 : entry.revents;
}

UNUSED static void nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

/* A connection whose other end does as `what` says. */
UNUSED static int open_to(char what) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&peer, sizeof peer)) {
        say("cannot connect: %s", strerrorname_np(errno));
        exit(1);
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    write(fd, &what, 1);
    return fd;
}

/* A listener, and its port as it is in an address. */
UNUSED static int listen_at_any(int *listener) {
    int on = 1;
    struct sockaddr_in own = {.sin_family = AF_INET};
    socklen_t len = sizeof own;
    *listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(*listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bind(*listener, (struct sockaddr *)&own, sizeof own);
    listen(*listener, 8);
    getsockname(*listener, (struct sockaddr *)&own, &len);
    return own.sin_port;
}

/* Has the peer connect back, say hello and echo. */
UNUSED static int call_back(unsigned short port) {
    int fd = open_to('b');
    write(fd, &port, 2);
    return fd;
}

UNUSED static int int_option(int fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    if (getsockopt(fd, level, name, &value, &len)) return -errno;
    return value;
}

UNUSED static int wait_one(int epoll, int ms) {
    struct epoll_event events[8];
    int count = epoll_wait(epoll, events, 8, ms), all = 0;
    for (int i = 0; i < count; i++) all |= events[i].events;
    return count <= 0 ? count : all;
}

UNUSED static long elapsed_ms(struct timespec began) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1000000;
}

/* Returns once the thread of a number, which it writes there itself, sleeps, or after a while. */
UNUSED static void until_asleep(int *number) {
    for (int turn = 0; turn < 2000; turn++) {
        char path[64], line[256] = "", *state;
        int id = __atomic_load_n(number, __ATOMIC_SEQ_CST);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
        FILE *file = id ? fopen(path, "r") : NULL;
        if (file) {
            fgets(line, sizeof line, file);
            fclose(file);
        }
        state = strrchr(line, ')');
        if (state && state[2] == 'S') return;
        usleep(1000);
    }
}

struct check {
    const char *name;
    void (*run)(void);
};

/* Runs the checks against the peer that the arguments name. */
UNUSED static int run_checks(int argc, char **argv, const struct check *checks, size_t count) {
    if (argc != 3) return 2;
    peer.sin_family = AF_INET;
    peer.sin_port = htons(atoi(argv[2]));
    inet_pton(AF_INET, argv[1], &peer.sin_addr);
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < count; i++) {
        check = checks[i].name;
        checks[i].run();
    }
    return 0;
}

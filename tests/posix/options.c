/* Every option of a TCP socket by its number: what it is, and what setting it comes to. Prints the same on
   kernel sockets and under the library, but for what is a machine's or a moment's, which is left out.
   Usage: options PEER-ADDRESS PORT (of the program peer) */
#define _GNU_SOURCE
#include "probing.h"
#include <linux/sock_diag.h>

/* Values that differ from one socket or machine to the next: only whether they are told counts. */
static int is_moments(int level, int name) {
    if (level == SOL_SOCKET)
        return name == SO_SNDBUF || name == SO_RCVBUF || name == SO_INCOMING_CPU || name == 57 /* COOKIE */
               || name == 71 /* NETNS_COOKIE */ || name == 56 /* INCOMING_NAPI_ID */ || name == 55 /* MEMINFO */
               || name == 17 /* PEERCRED */ || name == 28 /* PEERNAME */;
    if (level == IPPROTO_TCP)
        return name == TCP_INFO || name == TCP_CONGESTION || name == 26 /* CC_INFO */ || name == 24 /* TIMESTAMP */
               || name == TCP_MAXSEG || name == TCP_WINDOW_CLAMP || name == TCP_QUICKACK || name == 35;
    return (level == IPPROTO_IP && name == IP_MTU) || (level == IPPROTO_IPV6 && name == 24);
}

/* Options that would change what the check itself stands on. */
static int is_left_out(int level, int name) {
    /* Root may take a connection apart (TCP_REPAIR), but not the engine's; SO_PEERNAME depends on the room. */
    if (level == IPPROTO_TCP) return name == 19 || name == 22;
    /* What a route, a SYN or another option has left there; IP_MINTTL, which the engine's connections refuse. */
    if (level == IPPROTO_IP) return name == 52 || name == IP_MTU || name == IP_MULTICAST_TTL || name == 21;
    return level == SOL_SOCKET && (name == SO_RCVTIMEO || name == 28 || name == 68 || name == SO_SNDTIMEO || name == SO_LINGER || name == 25);
}

static void shown(int fd, int level, int name, const char *what, int hides) {
    unsigned char value[256] = {0};
    socklen_t len = sizeof value;
    if (getsockopt(fd, level, name, value, &len)) {
        more(" %s %s", what, strerrorname_np(errno));
        return;
    }
    if (hides) {
        more(" %s told", what);
        return;
    }
    int number = 0;
    memcpy(&number, value, sizeof number);
    more(" %s %d in %d", what, number, (int)len);
}

static void show(int fd, int level, int name, const char *what) {
    shown(fd, level, name, what, is_moments(level, name));
}

/* The same of an option that was set: a buffer's size tunes itself no more. */
static void show_set(int fd, int level, int name, const char *what) {
    int is_size = level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_RCVBUF);
    shown(fd, level, name, what, !is_size && is_moments(level, name));
}

static void table(int fd, const char *kind, int level, int last) {
    static const int values[] = {1, 0, 2, -1, 70000};
    for (int name = 1; name <= last; name++) {
        if (is_left_out(level, name)) continue;
        begin("%s level %d option %d", kind, level, name);
        show(fd, level, name, "is");
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            more(" set %d %s", values[i], result(setsockopt(fd, level, name, &values[i], sizeof values[i])));
            show_set(fd, level, name, "is");
        }
        char byte = 1;
        finish(" by a byte %s", result(setsockopt(fd, level, name, &byte, 1)));
    }
}

static void tables(int fd, const char *kind) {
    table(fd, kind, SOL_SOCKET, 90);
    table(fd, kind, IPPROTO_TCP, 45);
    table(fd, kind, IPPROTO_IP, 60);
}

static void connected(void) {
    int fd = open_to('q');
    tables(fd, "connected");
    close(fd);
}

static void accepted(void) {
    int control, on = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in here = {.sin_family = AF_INET};
    bind(listener, (struct sockaddr *)&here, sizeof here);
    listen(listener, 8);
    setsockopt(listener, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(listener, IPPROTO_TCP, 44, &(int){8000}, sizeof(int));
    socklen_t len = sizeof here;
    getsockname(listener, (struct sockaddr *)&here, &len);
    control = open_to('b');
    write(control, &here.sin_port, 2);
    int fd = accept(listener, NULL, NULL);
    tables(fd, "accepted");
    close(fd);
    close(control);
    close(listener);
}

/* Set before there is a connection. */
static void before(void) {
    static const struct { int level, name, value; } all[] = {
        {SOL_SOCKET, SO_PRIORITY, 3}, {SOL_SOCKET, SO_RCVLOWAT, 5}, {SOL_SOCKET, SO_OOBINLINE, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1}, {SOL_SOCKET, SO_DONTROUTE, 0}, {SOL_SOCKET, SO_REUSEADDR, 1},
        {SOL_SOCKET, 42, 7}, {SOL_SOCKET, 60, 1}, {IPPROTO_TCP, TCP_NODELAY, 1}, {IPPROTO_TCP, TCP_SYNCNT, 3},
        {IPPROTO_TCP, TCP_KEEPIDLE, 30}, {IPPROTO_TCP, TCP_LINGER2, 7}, {IPPROTO_TCP, TCP_USER_TIMEOUT, 9000},
        {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 5000}, {IPPROTO_TCP, 36, 1}, {IPPROTO_TCP, 16, 1}, {IPPROTO_TCP, 17, 1},
        {IPPROTO_TCP, TCP_DEFER_ACCEPT, 5}, {IPPROTO_IP, IP_TOS, 0x10}, {IPPROTO_IP, IP_TTL, 33},
        {IPPROTO_IP, IP_MTU_DISCOVER, 0}, {IPPROTO_IP, IP_RECVTOS, 1}, {IPPROTO_TCP, 27, 1},
        {SOL_SOCKET, SO_SNDBUF, 0}, {SOL_SOCKET, SO_SNDBUF, 20000}, {SOL_SOCKET, SO_SNDBUF, 0x7fffffff},
        {SOL_SOCKET, SO_RCVBUF, 0}, {SOL_SOCKET, SO_RCVBUF, 20000}, {SOL_SOCKET, SO_RCVBUF, 0x7fffffff},
        {IPPROTO_TCP, 44, 4000}, {IPPROTO_TCP, 44, 999}, {IPPROTO_TCP, 44, 120000}, {IPPROTO_TCP, 44, 120001},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        begin("before level %d option %d set %d", all[i].level, all[i].name, all[i].value);
        more(" %s", result(setsockopt(fd, all[i].level, all[i].name, &all[i].value, sizeof(int))));
        connect(fd, (struct sockaddr *)&peer, sizeof peer);
        show_set(fd, all[i].level, all[i].name, "is");
        finish("");
        close(fd);
    }
}

/* What asks for control messages of datagrams brings none with a stream's bytes. */
static void messages_of_datagrams(void) {
    static const int names[] = {IP_PKTINFO, IP_RECVTTL, IP_RECVTOS, IP_RECVOPTS, IP_RETOPTS, IP_RECVORIGDSTADDR};
    int fd = open_to('e');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char byte = 'x', control[256];
        struct iovec part = {&byte, 1};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        begin("option %d %s", names[i], result(setsockopt(fd, IPPROTO_IP, names[i], &(int){1}, sizeof(int))));
        write(fd, &byte, 1);
        more(" read %s", result(recvmsg(fd, &message, 0)));
        finish(" messages %d flags %x", (int)message.msg_controllen, message.msg_flags);
    }
    close(fd);
}

int main(int argc, char **argv) {
    static const struct check checks[] = {
        {"connected", connected}, {"accepted", accepted}, {"before", before},
        {"messages", messages_of_datagrams},
    };
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}

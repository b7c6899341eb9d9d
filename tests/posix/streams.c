/* What a program asks of a TCP connection beside its bytes: low-water marks, control messages, queues,
   and the error queue. Prints the same on kernel sockets and under the library.
   Usage: streams PEER-ADDRESS PORT (of the program peer) */
#define _GNU_SOURCE
#include "probing.h"
#include <stdint.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <time.h>

#ifndef TCP_INQ
#define TCP_INQ 36
#endif
#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

static char bytes[1 << 20];

static void set(int fd, int level, int name, int value) {
    begin("set %d", value);
    more(" %s", result(setsockopt(fd, level, name, &value, sizeof value)));
    finish(" is %d", int_option(fd, level, name));
}

static int queued(int fd, int request) {
    int value = -1;
    return ioctl(fd, request, &value) ? -errno : value;
}

/* Waits until so many bytes lie in the receive queue. */
static void until_queued(int fd, int count) {
    for (int turn = 0; turn < 5000 && queued(fd, SIOCINQ) < count; turn++) usleep(1000);
}

static int edge(int epoll) {
    struct epoll_event event;
    return epoll_wait(epoll, &event, 1, 20) == 1 ? (int)event.events : 0;
}

static void receive_low_water(void) {
    int fd = open_to('e');
    say("usual %d", int_option(fd, SOL_SOCKET, SO_RCVLOWAT));
    set(fd, SOL_SOCKET, SO_RCVLOWAT, 0);
    set(fd, SOL_SOCKET, SO_RCVLOWAT, -1);
    set(fd, SOL_SOCKET, SO_RCVLOWAT, 10);
    int epoll = epoll_create1(0);
    struct epoll_event event = {EPOLLIN | EPOLLET, {.fd = fd}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    write(fd, "1234", 4);
    until_queued(fd, 4);
    begin("four of ten %s", bits(poll_one(fd, POLLIN, 20)));
    more(" edge %s", bits(edge(epoll)));
    finish(" queued %d", queued(fd, SIOCINQ));
    say("taken at once %s", result(recv(fd, bytes, 2, MSG_DONTWAIT)));
    write(fd, "56789012", 8);
    until_queued(fd, 10);
    begin("ten of ten %s", bits(poll_one(fd, POLLIN, 5000)));
    finish(" edge %s", bits(edge(epoll)));
    begin("less than the mark %s", result(read(fd, bytes, 3)));
    finish(" then %s", bits(poll_one(fd, POLLIN, 20)));
    struct timeval time = {0, 50000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    say("no more comes %s", result(read(fd, bytes, 100)));
    say("none at all %s", result(read(fd, bytes, 100)));
    write(fd, "ab", 2);
    until_queued(fd, 2);
    begin("looked at %s", result(recv(fd, bytes, 100, MSG_PEEK)));
    finish(" at once %s", result(recv(fd, bytes, 100, MSG_PEEK | MSG_DONTWAIT)));
    time.tv_usec = 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    write(fd, "cdefghijkl", 10);
    say("waited for %d", recv(fd, bytes, 100, 0) >= 10);
    close(epoll);
    close(fd);
    fd = open_to('h');
    set(fd, SOL_SOCKET, SO_RCVLOWAT, 100);
    poll_one(fd, POLLRDHUP, 5000);
    begin("an end counts %s", bits(poll_one(fd, POLLIN, 0)));
    more(" read %s", result(read(fd, bytes, 100)));
    finish(" then %s", result(read(fd, bytes, 100)));
    close(fd);
    /* More than a fresh window holds. */
    fd = open_to('e');
    set(fd, SOL_SOCKET, SO_RCVLOWAT, 300000);
    int left = 400000;
    nonblocking(fd);
    while (left > 0) {
        ssize_t put = write(fd, bytes, left);
        if (put > 0) left -= put;
        else poll_one(fd, POLLOUT, 1000);
        if (poll_one(fd, POLLIN, 0)) break;
    }
    say("much %s", bits(poll_one(fd, POLLIN, 5000) & POLLIN));
    say("enough %d", queued(fd, SIOCINQ) >= 300000);
    close(fd);
}

static void unsent_low_water(void) {
    int fd = open_to('s');
    say("usual %d", int_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT));
    set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384);
    nonblocking(fd);
    long total = 0;
    int error;
    /* Until the peer's window is full, more is sent whenever something is acknowledged. */
    do {
        for (ssize_t put; (put = write(fd, bytes, 4096)) > 0;) total += put;
        error = errno;
    } while (poll_one(fd, POLLOUT, 200));
    say("full %s", strerrorname_np(error));
    /* In this order: what is acknowledged in between makes both less. */
    int outstanding = queued(fd, SIOCOUTQ), ahead = queued(fd, SIOCOUTQNSD);
    /* Not writable, so half of the mark at the least; and at most the mark and a frame beyond. */
    begin("ahead %d", ahead * 2 >= 16384 && ahead < 16384 + 2 * 65536);
    finish(" of %d", outstanding >= ahead && outstanding <= total);
    say("writable %s", bits(poll_one(fd, POLLOUT, 0)));
    say("later %s", bits(poll_one(fd, POLLOUT, 10000)));
    say("ahead less than half %d", queued(fd, SIOCOUTQNSD) * 2 < 16384);
    set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0);
    close(fd);
}

/* Reads, and tells what TCP_INQ says. */
static void read_with_hint(int fd, size_t len, size_t room) {
    char control[64];
    struct iovec part = {bytes, len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
    begin("read %s", result(recvmsg(fd, &message, 0)));
    more(" flags %x room %d", message.msg_flags, (int)message.msg_controllen);
    struct cmsghdr *first = CMSG_FIRSTHDR(&message);
    int value = -1;
    if (first) memcpy(&value, CMSG_DATA(first), sizeof value);
    finish(" tells %d %d %d", first ? first->cmsg_level : 0, first ? first->cmsg_type : 0, value);
}

static void queue_hints(void) {
    int fd = open_to('e');
    say("usual %d", int_option(fd, IPPROTO_TCP, TCP_INQ));
    set(fd, IPPROTO_TCP, TCP_INQ, 2);
    set(fd, IPPROTO_TCP, TCP_INQ, -1);
    set(fd, IPPROTO_TCP, TCP_INQ, 1);
    write(fd, bytes, 1000);
    until_queued(fd, 1000);
    read_with_hint(fd, 100, 64);
    read_with_hint(fd, 100, 0);
    read_with_hint(fd, 100, 18);
    say("plain %s", result(read(fd, bytes, 100)));
    read_with_hint(fd, 600, 64);
    close(fd);
    fd = open_to('h');
    set(fd, IPPROTO_TCP, TCP_INQ, 1);
    poll_one(fd, POLLRDHUP, 5000);
    say("queued %d", queued(fd, SIOCINQ));
    read_with_hint(fd, 1, 64);
    read_with_hint(fd, 2, 64);
    read_with_hint(fd, 2, 64);
    close(fd);
}

static void queues(void) {
    int fd = open_to('e');
    write(fd, "12345", 5);
    until_queued(fd, 5);
    begin("unread %d", queued(fd, SIOCINQ));
    more(" unacknowledged %d", queued(fd, SIOCOUTQ));
    finish(" unsent %d", queued(fd, SIOCOUTQNSD));
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    write(fd, "123", 3);
    begin("held back %d", queued(fd, SIOCOUTQ));
    finish(" unsent %d", queued(fd, SIOCOUTQNSD));
    shutdown(fd, SHUT_WR);
    poll_one(fd, POLLRDHUP, 5000);
    begin("ended %d", queued(fd, SIOCOUTQ));
    finish(" unsent %d", queued(fd, SIOCOUTQNSD));
    close(fd);
}

/* What lies in the error queue. */
static void read_error(int fd) {
    char control[128], data[16];
    struct sockaddr_in from = {0};
    struct iovec part = {data, sizeof data};
    struct msghdr message = {&from, sizeof from, &part, 1, control, sizeof control, 0};
    long got = recvmsg(fd, &message, MSG_ERRQUEUE);
    begin("report %s", result(got));
    if (got < 0) {
        finish("");
        return;
    }
    more(" flags %x room %d name %d", message.msg_flags, (int)message.msg_controllen, (int)message.msg_namelen);
    struct cmsghdr *first = message.msg_controllen >= sizeof *first ? CMSG_FIRSTHDR(&message) : NULL;
    if (first && !(message.msg_flags & MSG_CTRUNC)) {
        struct sock_extended_err error;
        memcpy(&error, CMSG_DATA(first), sizeof error);
        more(" level %d type %d length %d", first->cmsg_level, first->cmsg_type, (int)first->cmsg_len);
        more(" errno %d origin %d type %d code %d", error.ee_errno, error.ee_origin, error.ee_type, error.ee_code);
        more(" info %u data %u", error.ee_info, error.ee_data);
    }
    finish("");
}

static void echoed(int fd, int count) {
    say("echoed %s", result(recv(fd, bytes, count, MSG_WAITALL)));
    for (int turn = 0; turn < 5000 && queued(fd, SIOCOUTQ) > 0; turn++) usleep(1000);
}

static void zerocopy(void) {
    int fd = open_to('e');
    say("usual %d", int_option(fd, SOL_SOCKET, SO_ZEROCOPY));
    say("not asked for %s", result(send(fd, bytes, 1000, MSG_ZEROCOPY)));
    echoed(fd, 1000);
    read_error(fd);
    set(fd, SOL_SOCKET, SO_ZEROCOPY, 2);
    set(fd, SOL_SOCKET, SO_ZEROCOPY, -1);
    set(fd, SOL_SOCKET, SO_ZEROCOPY, 1);
    int epoll = epoll_create1(0);
    struct epoll_event event = {EPOLLIN | EPOLLET, {.fd = fd}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    say("plain %s", result(send(fd, bytes, 1000, 0)));
    echoed(fd, 1000);
    say("nothing to tell %s", bits(poll_one(fd, POLLOUT, 0)));
    for (int turn = 0; turn < 3; turn++) {
        say("sent %s", result(send(fd, bytes, 1000, MSG_ZEROCOPY)));
        echoed(fd, 1000);
    }
    say("none of nothing %s", result(send(fd, bytes, 0, MSG_ZEROCOPY)));
    say("told %s", bits(poll_one(fd, 0, 5000)));
    say("edge %s", bits(edge(epoll) & EPOLLERR));
    say("no error %d", int_option(fd, SOL_SOCKET, SO_ERROR));
    say("reads go on %s", result(recv(fd, bytes, 1, MSG_DONTWAIT)));
    read_error(fd);
    say("told %s", bits(poll_one(fd, 0, 0)));
    read_error(fd);
    struct iovec parts[20];
    for (int i = 0; i < 20; i++) parts[i] = (struct iovec){bytes + 100 * i, 10};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 20};
    say("in parts %s", result(sendmsg(fd, &message, MSG_ZEROCOPY)));
    echoed(fd, 200);
    poll_one(fd, 0, 5000);
    read_error(fd);
    close(epoll);
    shutdown(fd, SHUT_WR);
    begin("after the end %s", result(send(fd, bytes, 10, MSG_ZEROCOPY | MSG_NOSIGNAL)));
    finish(" told %s", bits(poll_one(fd, 0, 0) & POLLERR));
    close(fd);
    /* Asked for before there is a connection. */
    fd = socket(AF_INET, SOCK_STREAM, 0);
    set(fd, SOL_SOCKET, SO_ZEROCOPY, 1);
    begin("unconnected %s", result(send(fd, bytes, 10, MSG_ZEROCOPY | MSG_NOSIGNAL)));
    finish(" report %s", result(recv(fd, bytes, 10, MSG_ERRQUEUE)));
    connect(fd, (struct sockaddr *)&peer, sizeof peer);
    say("connected is %d", int_option(fd, SOL_SOCKET, SO_ZEROCOPY));
    write(fd, "e", 1);
    say("sent %s", result(send(fd, bytes, 100, MSG_ZEROCOPY)));
    echoed(fd, 100);
    poll_one(fd, 0, 5000);
    read_error(fd);
    close(fd);
}

/* Whether a time is of these days and not before the one told last. */
static int is_sane(long long seconds, long long nanoseconds, long long *last) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    long long at = seconds * 1000000000 + nanoseconds, here = now.tv_sec * 1000000000LL + now.tv_nsec;
    int sane = at > here - 60000000000LL && at <= here && at + 1000 > *last;
    *last = at;
    return sane;
}

/* What comes with bytes, or with a report. */
static void show_messages(struct msghdr *message, long long *last) {
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
        more(" level %d type %d length %d", at->cmsg_level, at->cmsg_type, (int)at->cmsg_len);
        long long words[6] = {0};
        struct sock_extended_err error;
        memcpy(words, CMSG_DATA(at), at->cmsg_len - CMSG_LEN(0) < sizeof words ? at->cmsg_len - CMSG_LEN(0) : sizeof words);
        switch (at->cmsg_type) {
        case SO_TIMESTAMP_OLD: case SO_TIMESTAMP_NEW: more(" sane %d", is_sane(words[0], words[1] * 1000, last)); break;
        case SO_TIMESTAMPNS_OLD: case SO_TIMESTAMPNS_NEW: more(" sane %d", is_sane(words[0], words[1], last)); break;
        case SO_TIMESTAMPING_OLD: case SO_TIMESTAMPING_NEW:
            more(" sane %d hardware %lld %lld", is_sane(words[0], words[1], last), words[4], words[5]);
            break;
        case IP_RECVERR:
            memcpy(&error, CMSG_DATA(at), sizeof error);
            more(" errno %d origin %d info %u data %u", error.ee_errno, error.ee_origin, error.ee_info, error.ee_data);
        }
    }
}

/* The kernel begins to note times a while after the first socket asks. Keeps such a socket. */
static int with_times_noted(void) {
    int fd = open_to('e'), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP_OLD, &on, sizeof on);
    for (int turn = 0; turn < 1000; turn++) {
        char control[64], byte;
        struct iovec part = {&byte, 1};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        write(fd, "t", 1);
        if (recvmsg(fd, &message, 0) != 1 || message.msg_controllen > 0) break;
        usleep(1000);
    }
    return fd;
}

static void read_with_time(int fd, const char *what, int flags) {
    char control[256];
    long long last = 0;
    write(fd, "0123456789", 10);
    until_queued(fd, 10);
    struct iovec part = {bytes, 4};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    begin("%s %s", what, result(recvmsg(fd, &message, flags)));
    show_messages(&message, &last);
    finish(" flags %x", message.msg_flags);
    recv(fd, bytes, flags & MSG_PEEK ? 10 : 6, MSG_WAITALL);
}

static void times_of_bytes_read(void) {
    static const int names[] = {SO_TIMESTAMP_OLD, SO_TIMESTAMPNS_OLD, SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW};
    int noted = with_times_noted(), fd = open_to('e'), off = 0;
    read_with_time(fd, "none", 0);
    for (int i = 0; i < 4; i++) {
        set(fd, SOL_SOCKET, names[i], 5);
        for (int other = 0; other < 4; other++) say("is %d", int_option(fd, SOL_SOCKET, names[other]));
        read_with_time(fd, "with time", 0);
        read_with_time(fd, "looked at", MSG_PEEK);
    }
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP_OLD, &off, sizeof off);
    read_with_time(fd, "none again", 0);
    set(fd, SOL_SOCKET, SO_TIMESTAMPING_OLD, SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_RX_SOFTWARE);
    read_with_time(fd, "software", 0);
    set(fd, SOL_SOCKET, SO_TIMESTAMPING_NEW, SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_RX_SOFTWARE);
    read_with_time(fd, "software by its new name", 0);
    set(fd, SOL_SOCKET, SO_TIMESTAMPING_OLD, SOF_TIMESTAMPING_RAW_HARDWARE | SOF_TIMESTAMPING_RX_HARDWARE);
    read_with_time(fd, "hardware", 0);
    close(fd);
    close(noted);
}

static void show_reports(int fd, int count) {
    long long last = 0;
    for (int i = 0; i < count; i++) {
        char control[256];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        poll_one(fd, 0, 1000);
        long got = recvmsg(fd, &message, MSG_ERRQUEUE);
        begin("report %s", result(got));
        if (got >= 0) show_messages(&message, &last);
        finish(got >= 0 ? " flags %x" : "", message.msg_flags);
    }
}

static void times_of_bytes_sent(void) {
    int all = SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_ACK;
    int base = SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    set(fd, SOL_SOCKET, SO_TIMESTAMPING_OLD, base | SOF_TIMESTAMPING_OPT_ID);
    close(fd);
    fd = open_to('e');
    for (int turn = 0; turn < 5000 && queued(fd, SIOCOUTQ) > 0; turn++) usleep(1000);
    set(fd, SOL_SOCKET, SO_TIMESTAMPING_OLD, 1 << 30);
    set(fd, SOL_SOCKET, SO_TIMESTAMPING_OLD, 1 << 16);
    set(fd, SOL_SOCKET, SO_TIMESTAMPING_OLD, 1 << 12);
    set(fd, SOL_SOCKET, SO_TIMESTAMPING_OLD, base | all | SOF_TIMESTAMPING_OPT_ID);
    say("nothing yet %s", bits(poll_one(fd, 0, 0)));
    write(fd, bytes, 100);
    echoed(fd, 100);
    say("told %s", bits(poll_one(fd, 0, 5000)));
    show_reports(fd, 4);
    write(fd, bytes, 50);
    echoed(fd, 50);
    show_reports(fd, 4);
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {bytes, 20};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *wish = CMSG_FIRSTHDR(&message);
    *wish = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SO_TIMESTAMPING_OLD};
    int kinds = SOF_TIMESTAMPING_TX_ACK;
    memcpy(CMSG_DATA(wish), &kinds, sizeof kinds);
    say("acknowledged alone %s", result(sendmsg(fd, &message, 0)));
    echoed(fd, 20);
    show_reports(fd, 2);
    kinds = SOF_TIMESTAMPING_SOFTWARE;
    memcpy(CMSG_DATA(wish), &kinds, sizeof kinds);
    say("not to be wished %s", result(sendmsg(fd, &message, 0)));
    set(fd, SOL_SOCKET, SO_TIMESTAMPING_OLD, 0);
    write(fd, bytes, 10);
    echoed(fd, 10);
    show_reports(fd, 1);
    close(fd);
}

static void pipes(void) {
    int ends[2], fd = open_to('e');
    off_t at = 0;
    char text[16] = "";
    pipe(ends);
    say("empty pipe %s", result(splice(ends[0], NULL, fd, NULL, 100, SPLICE_F_NONBLOCK)));
    write(ends[1], "abcdefghij", 10);
    say("a part out %s", result(splice(ends[0], NULL, fd, NULL, 4, 0)));
    say("the rest out %s", result(splice(ends[0], NULL, fd, NULL, 100, 0)));
    until_queued(fd, 10);
    begin("offset %s", result(splice(fd, &at, ends[1], NULL, 4, 0)));
    more(" %s", result(splice(ends[0], NULL, fd, &at, 4, 0)));
    finish(" no pipe %s", result(splice(fd, NULL, fd, NULL, 4, 0)));
    begin("a part in %s", result(splice(fd, NULL, ends[1], NULL, 4, 0)));
    finish(" %s %.4s", result(read(ends[0], text, 16)), text);
    nonblocking(fd);
    begin("the rest in %s", result(splice(fd, NULL, ends[1], NULL, 100, SPLICE_F_NONBLOCK)));
    more(" nothing %s", result(splice(fd, NULL, ends[1], NULL, 100, SPLICE_F_NONBLOCK)));
    finish(" %s %.6s", result(read(ends[0], text, 16)), text);
    begin("tee %s", result(tee(fd, ends[1], 10, SPLICE_F_NONBLOCK)));
    finish(" vmsplice %s", result(vmsplice(fd, &(struct iovec){bytes, 10}, 1, SPLICE_F_NONBLOCK)));
    nonblocking(ends[1]);
    long full = 0;
    for (ssize_t put; (put = write(ends[1], bytes, 4096)) > 0;) full += put;
    write(fd, "xyz", 3);
    until_queued(fd, 3);
    begin("full pipe %s", result(splice(fd, NULL, ends[1], NULL, 100, SPLICE_F_NONBLOCK)));
    finish(" left %d", queued(fd, SIOCINQ));
    while (full > 0) full -= read(ends[0], bytes, 4096);
    say("room again %s", result(splice(fd, NULL, ends[1], NULL, 100, 0)));
    say("came %s", result(read(ends[0], text, 16)));
    close(ends[1]);
    say("ended pipe %s", result(splice(ends[0], NULL, fd, NULL, 100, 0)));
    close(ends[0]);
    close(fd);
    fd = open_to('h');
    pipe(ends);
    poll_one(fd, POLLRDHUP, 5000);
    begin("to the end %s", result(splice(fd, NULL, ends[1], NULL, 100, 0)));
    finish(" then %s", result(splice(fd, NULL, ends[1], NULL, 100, 0)));
    shutdown(fd, SHUT_WR);
    begin("after it %s", result(splice(ends[0], NULL, fd, NULL, 3, 0)));
    finish(" still there %s", result(read(ends[0], text, 16)));
    close(ends[0]);
    close(ends[1]);
    close(fd);
}

/* A pipe without room is waited for, unless the call says otherwise. */
static void full_pipe(void) {
    static char page[4096];
    int fd = open_to('e'), ends[2];
    pipe(ends);
    fcntl(ends[1], F_SETPIPE_SZ, sizeof page);
    write(ends[1], page, sizeof page);
    write(fd, "abc", 3);
    poll_one(fd, POLLIN, 5000);
    say("at once %s", result(splice(fd, NULL, ends[1], NULL, 3, SPLICE_F_NONBLOCK)));
    if (fork() == 0) {
        usleep(100000);
        read(ends[0], page, sizeof page);
        _exit(0);
    }
    begin("in the end %s", result(splice(fd, NULL, ends[1], NULL, 3, 0)));
    finish(" %s", result(read(ends[0], page, sizeof page)));
    close(ends[0]);
    close(ends[1]);
    close(fd);
}

static void until_unread(int fd, int count) {
    for (int turn = 0, there = 0; turn < 10000 && there < count; turn++) {
        ioctl(fd, FIONREAD, &there);
        usleep(500);
    }
}

/* Bytes that are taken, or counted, and have no place. */
static void discarded(void) {
    static char bytes[30000];
    int fd = open_to('e');
    write(fd, bytes, sizeof bytes);
    until_unread(fd, sizeof bytes);
    struct iovec part = {NULL, 20};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    begin("taken %s", result(recv(fd, NULL, 10, MSG_TRUNC)));
    more(" counted %s", result(recv(fd, NULL, 100, MSG_TRUNC | MSG_PEEK)));
    more(" as a message %s", result(recvmsg(fd, &message, MSG_TRUNC)));
    more(" all %s", result(recvfrom(fd, NULL, 100000, MSG_TRUNC, NULL, NULL)));
    finish(" then %s", result(recv(fd, NULL, 10, MSG_TRUNC | MSG_DONTWAIT)));
    close(fd);
}

/* struct tcp_zerocopy_receive of linux/tcp.h. */
struct mapping {
    uint64_t address;
    uint32_t length, to_read, unread;
    int32_t error;
    uint64_t copy;
    int32_t copy_length;
    uint32_t flags;
    uint64_t control, control_length;
    uint32_t message_flags, reserved;
};

static void mapped(void) {
    const int name = 35 /* TCP_ZEROCOPY_RECEIVE */;
    int fd = open_to('e');
    write(fd, "abc", 3);
    until_unread(fd, 3);
    struct mapping mapping = {.length = 4096};
    socklen_t len = sizeof mapping;
    begin("less than a page %s", result(getsockopt(fd, IPPROTO_TCP, name, &mapping, &len)));
    finish(" in %u bytes mapped %u to read %u of %u error %d", len, mapping.length, mapping.to_read,
           mapping.unread, mapping.error);
    mapping.address = 1;
    say("nowhere %s", result(getsockopt(fd, IPPROTO_TCP, name, &mapping, &len)));
    close(fd);
    fd = open_to('h');
    poll_one(fd, POLLRDHUP, 5000);
    mapping = (struct mapping){0};
    begin("at the end %s", result(getsockopt(fd, IPPROTO_TCP, name, &mapping, &len)));
    more(" to read %u", mapping.to_read);
    recv(fd, &mapping.copy, 3, MSG_WAITALL);
    finish(" and after it %s", result(getsockopt(fd, IPPROTO_TCP, name, &mapping, &len)));
    close(fd);
}

/* Calls that are wrong, each in its own way. */
static void wrong(void) {
    static struct iovec parts[1025];
    static char byte;
    int fd = open_to('e'), set = epoll_create1(0);
    for (int i = 0; i < 1025; i++) parts[i] = (struct iovec){&byte, 1};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 1025};
    begin("too many parts %s", result(sendmsg(fd, &message, 0)));
    more(" %s", result(recvmsg(fd, &message, 0)));
    more(" %s", result(writev(fd, parts, 1025)));
    finish(" %s", result(readv(fd, parts, 1025)));
    parts[1].iov_len = ~(size_t)0;
    message.msg_iovlen = 2;
    begin("too long %s", result(sendmsg(fd, &message, 0)));
    more(" %s", result(recvmsg(fd, &message, 0)));
    more(" %s", result(writev(fd, parts, 2)));
    finish(" %s", result(readv(fd, parts, 2)));
    begin("no event %s", result(epoll_ctl(set, EPOLL_CTL_ADD, fd, NULL)));
    more(" %s", result(epoll_ctl(set, EPOLL_CTL_MOD, fd, NULL)));
    more(" %s", result(epoll_ctl(set, 9, fd, NULL)));
    finish(" %s", result(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL)));
    struct sockaddr_in here = {.sin_family = AF_INET};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (struct sockaddr *)&here, sizeof here);
    listen(listener, 1);
    say("no such flag %s", result(accept4(listener, NULL, NULL, 8)));
    close(listener);
    close(set);
    close(fd);
}

/* How long answers are. */
static void answers(void) {
    int fd = open_to('e');
    char room[512] = {0};
    socklen_t len = sizeof room;
    begin("TCP_INFO %s", result(getsockopt(fd, IPPROTO_TCP, TCP_INFO, room, &len)));
    finish(" in %u bytes", len);
    struct sockaddr_in name = {0};
    socklen_t whole = sizeof name, part = 4, longer = sizeof room;
    begin("peer %s", result(getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &name, &whole)));
    more(" is it %d in %u", name.sin_addr.s_addr == peer.sin_addr.s_addr && name.sin_port == peer.sin_port, whole);
    more(" part %s", result(getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &name, &part)));
    finish(" in %u more %s", part, result(getsockopt(fd, SOL_SOCKET, SO_PEERNAME, room, &longer)));
    close(fd);
}

int main(int argc, char **argv) {
    static const struct check checks[] = {
        {"receive low water", receive_low_water}, {"unsent low water", unsent_low_water},
        {"queue hints", queue_hints}, {"queues", queues}, {"zerocopy", zerocopy},
        {"pipes", pipes}, {"full pipe", full_pipe}, {"times of bytes read", times_of_bytes_read}, {"times of bytes sent", times_of_bytes_sent},
        {"discarded", discarded}, {"mapped", mapped}, {"wrong", wrong}, {"answers", answers},
    };
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}

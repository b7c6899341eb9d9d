/* When what is received came, and what is sent went: SO_TIMESTAMP and its kin, SIOCGSTAMP, and reports in
   the error queue. Prints what it sees, which must be the same on kernel sockets and under the library: not
   the times, but whether they can be. Usage: times PEER-ADDRESS PORT (of the program peer) */
#define _GNU_SOURCE
#include "probing.h"
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/udp.h>
#include <time.h>

#define NEW_TIMESTAMP 63
#define NEW_TIMESTAMPNS 64
#define NEW_TIMESTAMPING 65
#define OPT_STATS_MESSAGE 54
#define TS_OPT_ID_MESSAGE 81

static long long begun;

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Whether a time is one of this check: not before it began, by as much as clocks may be read apart, and
   not to come. */
static int is_of_now(long long seconds, long long parts, long long in_a_second) {
    if (parts < 0 || parts >= in_a_second) return 0;
    long long at = seconds * 1000000000LL + parts * (1000000000LL / in_a_second);
    return at > begun - 10000000 && at <= now_ns() + 10000000;
}

static void attributes(const unsigned char *data, size_t len) {
    more(" attributes");
    for (size_t at = 0; at + 4 <= len;) {
        unsigned short size, kind;
        memcpy(&size, data + at, 2);
        memcpy(&kind, data + at + 2, 2);
        unsigned long long value = 0;
        memcpy(&value, data + at + 4, size - 4 <= 8 ? size - 4 : 8);
        /* What neither a clock nor a path decides; when the byte went and with what TTL the answer came is
           not known to everybody. */
        int is_told = kind == 4 || kind == 5 || kind == 11 || kind == 14 || kind == 15 || kind == 17 || kind == 19
                      || kind == 20 || kind == 21 || kind == 23 || kind == 27;
        if (kind != 25 && kind != 26) {
            more(" %d:%d", kind, size);
            if (is_told) more("=%llu", value);
        }
        at += (size + 3) & ~3;
    }
}

static void message(struct cmsghdr *at) {
    unsigned char *data = CMSG_DATA(at);
    size_t len = at->cmsg_len - CMSG_LEN(0);
    long long words[6] = {0};
    more(" [%d %d", at->cmsg_level, at->cmsg_type);
    if (at->cmsg_type != OPT_STATS_MESSAGE) more(" %zu", len);
    memcpy(words, data, len < sizeof words ? len : sizeof words);
    if (at->cmsg_level == SOL_SOCKET && (at->cmsg_type == SO_TIMESTAMP || at->cmsg_type == NEW_TIMESTAMP))
        more(" now %d", is_of_now(words[0], words[1], 1000000));
    else if (at->cmsg_level == SOL_SOCKET && (at->cmsg_type == SO_TIMESTAMPNS || at->cmsg_type == NEW_TIMESTAMPNS))
        more(" now %d", is_of_now(words[0], words[1], 1000000000));
    else if (at->cmsg_level == SOL_SOCKET && (at->cmsg_type == SO_TIMESTAMPING || at->cmsg_type == NEW_TIMESTAMPING))
        more(" now %d others %d", is_of_now(words[0], words[1], 1000000000), words[2] || words[3] || words[4] || words[5]);
    else if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == OPT_STATS_MESSAGE)
        attributes(data, len);
    else if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_PKTINFO) {
        struct in_pktinfo *info = (void *)data;
        more(" interface %d from the peer %d to the peer %d", info->ipi_ifindex != 0,
             info->ipi_spec_dst.s_addr == peer.sin_addr.s_addr, info->ipi_addr.s_addr == peer.sin_addr.s_addr);
    } else if (at->cmsg_type == IP_RECVERR || at->cmsg_type == IPV6_RECVERR) {
        struct sock_extended_err *error = (void *)data;
        struct sockaddr_in *who = (void *)SO_EE_OFFENDER(error);
        more(" %s origin %d type %d code %d info %u data %u offender %d", strerrorname_np(error->ee_errno), error->ee_origin,
             error->ee_type, error->ee_code, error->ee_info, error->ee_data, who->sin_family);
    }
    more("]");
}

/* Receives once, and says what came with it. */
static int receive(int fd, const char *what, size_t room, int flags) {
    static unsigned char buffer[70000], control[1024];
    struct sockaddr_storage from;
    struct iovec part = {buffer, room};
    struct msghdr header = {&from, sizeof from, &part, 1, control, sizeof control, 0};
    struct pollfd waits = {fd, POLLIN, 0};
    if (!(flags & MSG_ERRQUEUE)) poll(&waits, 1, 3000);
    long got = recvmsg(fd, &header, flags | MSG_DONTWAIT);
    /* What of statistics is not known to everybody makes them shorter. */
    if (got > 200 && !strcmp(check, "statistics")) got = 200;
    begin("%s: %s", what, result(got));
    if (got < 0) {
        finish("");
        return 0;
    }
    more(" name %d flags %x", header.msg_namelen != 0, header.msg_flags);
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&header); at; at = CMSG_NXTHDR(&header, at)) message(at);
    /* A packet as it was sent ends with what the program said. */
    finish(got > 42 && buffer[12] == 8 ? " ends %d" : "", buffer[got - 1] == 'z');
    return 1;
}

static int open_datagram(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    connect(fd, (struct sockaddr *)&peer, sizeof peer);
    begun = now_ns();
    return fd;
}

static long set(int fd, int name, int value) { return setsockopt(fd, SOL_SOCKET, name, &value, sizeof value); }

static void tell(int fd, const char *what, int name, int value) {
    static const int names[] = {SO_TIMESTAMP, SO_TIMESTAMPNS, NEW_TIMESTAMP, NEW_TIMESTAMPNS, SO_TIMESTAMPING, NEW_TIMESTAMPING};
    begin("%s set %s is", what, result(set(fd, name, value)));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) more(" %d", int_option(fd, SOL_SOCKET, names[i]));
    finish("");
}

static void exchanged(int fd, const char *what) {
    send(fd, "abcdz", 5, 0);
    receive(fd, what, 100, 0);
}

static void arrivals(void) {
    const int software = SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_RX_SOFTWARE;
    int fd = open_datagram();
    exchanged(fd, "without");
    tell(fd, "SO_TIMESTAMP", SO_TIMESTAMP, 1);
    exchanged(fd, "SO_TIMESTAMP");
    tell(fd, "SO_TIMESTAMPNS", SO_TIMESTAMPNS, 1);
    exchanged(fd, "SO_TIMESTAMPNS");
    tell(fd, "new SO_TIMESTAMP", NEW_TIMESTAMP, 1);
    exchanged(fd, "new SO_TIMESTAMP");
    tell(fd, "new SO_TIMESTAMPNS", NEW_TIMESTAMPNS, 1);
    exchanged(fd, "new SO_TIMESTAMPNS");
    tell(fd, "both", SO_TIMESTAMPING, software);
    exchanged(fd, "both");
    tell(fd, "new beside", NEW_TIMESTAMPING, software);
    exchanged(fd, "new beside");
    tell(fd, "off", NEW_TIMESTAMPNS, 0);
    exchanged(fd, "SO_TIMESTAMPING");
    tell(fd, "old", SO_TIMESTAMPING, software);
    exchanged(fd, "old SO_TIMESTAMPING");
    send(fd, "abcdz", 5, 0);
    receive(fd, "looked at", 100, MSG_PEEK);
    receive(fd, "taken", 3, 0);
    int on = 1;
    setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    exchanged(fd, "beside IP_PKTINFO");
    tell(fd, "unknown", SO_TIMESTAMPING, 1 << 30);
    tell(fd, "all off", SO_TIMESTAMPING, 0);
    exchanged(fd, "all off");
    send(fd, "late", 4, 0);
    usleep(100000);
    tell(fd, "after it came", SO_TIMESTAMP, 1);
    receive(fd, "after it came", 100, 0);
    close(fd);
}

static void last(int fd, const char *what) {
    static const unsigned long requests[] = {0x8906, 0x8907, 0x80108906, 0x80108907};
    begin("%s", what);
    long long first = 0;
    for (int i = 0; i < 4; i++) {
        long long time[2] = {-1, -1};
        int told = ioctl(fd, requests[i], time);
        more(" %s", result(told));
        if (told) continue;
        more(" now %d", is_of_now(time[0], time[1], i & 1 ? 1000000000 : 1000000));
        long long at = time[0] * 1000000 + (i & 1 ? time[1] / 1000 : time[1]);
        if (!first) first = at;
        more(" same %d", at == first);
    }
    finish("");
}

static void asked_afterwards(void) {
    int fd = open_datagram();
    last(fd, "before anything");
    exchanged(fd, "first");
    last(fd, "after one");
    exchanged(fd, "second");
    last(fd, "after two");
    set(fd, SO_TIMESTAMP, 1);
    exchanged(fd, "with its time");
    last(fd, "that of before");
    set(fd, SO_TIMESTAMP, 0);
    exchanged(fd, "without it");
    last(fd, "after four");
    close(fd);
    fd = open_datagram();
    exchanged(fd, "first");
    last(fd, "not asked before");
    close(fd);
    fd = open_to('e');
    begun = now_ns();
    write(fd, "a", 1);
    receive(fd, "stream", 10, 0);
    last(fd, "stream");
    close(fd);
}

static void reports(int fd, const char *what, int most) {
    for (int i = 0; i < most; i++) {
        struct pollfd waits = {fd, 0, 0};
        poll(&waits, 1, i ? 100 : 3000);
        if (!receive(fd, what, 2000, MSG_ERRQUEUE)) break;
    }
}

static long send_saying(int fd, int kind, const void *data, size_t len) {
    char control[64] = {0};
    struct iovec part = {"abcdz", 5};
    struct msghdr header = {NULL, 0, &part, 1, control, CMSG_SPACE(len), 0};
    struct cmsghdr *at = CMSG_FIRSTHDR(&header);
    at->cmsg_level = SOL_SOCKET;
    at->cmsg_type = kind;
    at->cmsg_len = CMSG_LEN(len);
    memcpy(CMSG_DATA(at), data, len);
    return sendmsg(fd, &header, 0);
}

/* The peer's answer; whether its time is told where only reports are asked for is by what others on the
   machine have asked for. */
static void answer(int fd) {
    static char buffer[100];
    struct timeval patience = {3, 0};
    /* Reports end a poll at once. */
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    say("answer %s", result(recv(fd, buffer, sizeof buffer, 0)));
}

static void answered(int fd) {
    send(fd, "abcdz", 5, 0);
    answer(fd);
}

static void departures(void) {
    const int told = SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID;
    const int both = SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE;
    const int bare = SOF_TIMESTAMPING_OPT_TSONLY;
    int fd = open_datagram(), on = 1;
    /* Neighbours are known from here on, and answers are out of the way. */
    answered(fd);
    say("set %s", result(set(fd, SO_TIMESTAMPING, told | both | bare)));
    for (int i = 0; i < 3; i++) answered(fd);
    begin("polled");
    finish(" %s", bits(poll_one(fd, POLLIN, 3000)));
    reports(fd, "both", 7);
    set(fd, SO_TIMESTAMPING, told | SOF_TIMESTAMPING_TX_SOFTWARE | bare);
    answered(fd);
    reports(fd, "sent alone", 2);
    set(fd, NEW_TIMESTAMPING, told | SOF_TIMESTAMPING_TX_SCHED | bare);
    answered(fd);
    reports(fd, "scheduled alone, new", 2);
    set(fd, SO_TIMESTAMPING, both | SOF_TIMESTAMPING_SOFTWARE | bare);
    answered(fd);
    reports(fd, "without numbers", 3);
    set(fd, SO_TIMESTAMPING, both | SOF_TIMESTAMPING_OPT_ID | bare);
    answered(fd);
    reports(fd, "numbered anew, without times", 3);
    set(fd, SO_TIMESTAMPING, both | told);
    answered(fd);
    reports(fd, "with the packet", 3);
    answered(fd);
    receive(fd, "cut", 20, MSG_ERRQUEUE);
    reports(fd, "whole", 2);
    setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    set(fd, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SCHED | told);
    answered(fd);
    reports(fd, "IP_PKTINFO", 2);
    set(fd, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SCHED | told | SOF_TIMESTAMPING_OPT_CMSG);
    answered(fd);
    reports(fd, "OPT_CMSG", 2);
    set(fd, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SCHED | told | SOF_TIMESTAMPING_OPT_CMSG | bare);
    answered(fd);
    reports(fd, "OPT_CMSG without the packet", 2);
    close(fd);
}

static void departures_by_call(void) {
    int told = SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY, number = 4321;
    int fd = open_datagram(), flags = SOF_TIMESTAMPING_TX_SCHED;
    answered(fd);
    set(fd, SO_TIMESTAMPING, told);
    answered(fd);
    say("scheduled %s", result(send_saying(fd, SO_TIMESTAMPING, &flags, sizeof flags)));
    answer(fd);
    reports(fd, "scheduled", 2);
    say("new name %s", result(send_saying(fd, NEW_TIMESTAMPING, &flags, sizeof flags)));
    answer(fd);
    reports(fd, "new name", 2);
    flags = SOF_TIMESTAMPING_RX_SOFTWARE;
    say("of arrivals %s", result(send_saying(fd, SO_TIMESTAMPING, &flags, sizeof flags)));
    say("too long %s", result(send_saying(fd, SO_TIMESTAMPING, &(long){0}, sizeof(long))));
    set(fd, SO_TIMESTAMPING, told | SOF_TIMESTAMPING_TX_SOFTWARE);
    flags = 0;
    say("taken back %s", result(send_saying(fd, SO_TIMESTAMPING, &flags, sizeof flags)));
    answer(fd);
    say("number %s", result(send_saying(fd, TS_OPT_ID_MESSAGE, &number, sizeof number)));
    answer(fd);
    reports(fd, "number", 2);
    answered(fd);
    reports(fd, "the next one", 2);
    set(fd, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_TX_SOFTWARE);
    say("number without numbers %s", result(send_saying(fd, TS_OPT_ID_MESSAGE, &number, sizeof number)));
    /* Several at once are one call. */
    set(fd, SO_TIMESTAMPING, told | SOF_TIMESTAMPING_TX_SOFTWARE);
    int size = 2;
    setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
    answered(fd);
    answer(fd);
    answer(fd);
    reports(fd, "segments", 2);
    /* What is refused has no number. */
    static char large[65520];
    size = 0;
    setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size);
    say("too long a piece %s", result(send(fd, large, sizeof large, MSG_MORE)));
    answered(fd);
    reports(fd, "the next number", 2);
    close(fd);
}

static void errors(void) {
    struct sockaddr_in nowhere = peer;
    nowhere.sin_port = htons(9);
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    connect(fd, (struct sockaddr *)&nowhere, sizeof nowhere);
    begun = now_ns();
    setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
    set(fd, SO_TIMESTAMPNS, 1);
    send(fd, "abcdz", 5, 0);
    poll_one(fd, POLLIN, 3000);
    receive(fd, "error", 100, MSG_ERRQUEUE);
    set(fd, SO_TIMESTAMPNS, 0);
    set(fd, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_RX_SOFTWARE);
    send(fd, "abcdz", 5, 0);
    poll_one(fd, POLLIN, 3000);
    receive(fd, "error", 100, MSG_ERRQUEUE);
    close(fd);
}

static void mapped(void) {
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = peer.sin_port};
    int fd = socket(AF_INET6, SOCK_DGRAM, 0), on = 1;
    memcpy(&to.sin6_addr, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
    memcpy((char *)&to.sin6_addr + 12, &peer.sin_addr, 4);
    connect(fd, (struct sockaddr *)&to, sizeof to);
    begun = now_ns();
    exchanged(fd, "without");
    set(fd, SO_TIMESTAMP, 1);
    setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
    exchanged(fd, "arrival");
    set(fd, SO_TIMESTAMP, 0);
    set(fd, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_OPT_ID);
    answered(fd);
    reports(fd, "with the packet", 2);
    set(fd, SO_TIMESTAMPING,
        SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY);
    answered(fd);
    reports(fd, "without it", 2);
    close(fd);
}

static void statistics(void) {
    const int told = SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY;
    int fd = open_to('q');
    begun = now_ns();
    usleep(50000);
    say("without OPT_TSONLY %s", result(set(fd, SO_TIMESTAMPING, SOF_TIMESTAMPING_OPT_STATS)));
    say("set %s", result(set(fd, SO_TIMESTAMPING, told | SOF_TIMESTAMPING_OPT_STATS | SOF_TIMESTAMPING_TX_ACK)));
    write(fd, "abcd", 4);
    struct pollfd waits = {fd, 0, 0};
    poll(&waits, 1, 3000);
    receive(fd, "looked at", 2000, MSG_ERRQUEUE | MSG_PEEK);
    receive(fd, "acknowledged", 0, MSG_ERRQUEUE);
    set(fd, SO_TIMESTAMP, 1);
    write(fd, "abcd", 4);
    reports(fd, "beside SO_TIMESTAMP", 1);
    close(fd);
}

int main(int argc, char **argv) {
    const struct check checks[] = {
        {"arrivals", arrivals}, {"afterwards", asked_afterwards}, {"departures", departures},
        {"by call", departures_by_call}, {"errors", errors}, {"mapped", mapped}, {"statistics", statistics},
    };
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}

/* Options, control messages and errors of UDP sockets: prints what it sees, which must be the same
   on kernel sockets and under the library. Usage: ancillary PEER PORT (of the program peer). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

static struct sockaddr_in peer;
static struct sockaddr_in6 mapped;
static char text[70000];

static const char *result(long value) {
    static char texts[4][64];
    static int turn;
    char *out = texts[turn++ % 4];
    if (value >= 0) snprintf(out, 64, "%ld", value);
    else snprintf(out, 64, "-1 %s", strerrorname_np(errno));
    return out;
}

static void set(int fd, int level, int name, int value) {
    printf("option %d %d to %d: %s\n", level, name, value, result(setsockopt(fd, level, name, &value, sizeof value)));
    int now = -2;
    socklen_t len = sizeof now;
    long got = getsockopt(fd, level, name, &now, &len);
    printf("  is %s %d of %d bytes\n", result(got), now, (int)len);
}

/* Everything that a received message says. */
static long told(int fd, size_t room, size_t control_room, int flags) {
    static char buffer[70000], control[512];
    struct sockaddr_storage from;
    memset(&from, 0, sizeof from);
    struct iovec part = {buffer, room};
    struct msghdr message = {&from, sizeof from, &part, 1, control, control_room, 0};
    struct pollfd waits = {fd, POLLIN, 0};
    poll(&waits, 1, 3000);
    long got = recvmsg(fd, &message, flags | MSG_DONTWAIT);
    printf("  recvmsg %s flags %x control %zu\n", result(got), message.msg_flags, (size_t)message.msg_controllen);
    if (got < 0) return got;
    if (from.ss_family == AF_INET)
        printf("  from the peer's address %d\n", ((struct sockaddr_in *)&from)->sin_addr.s_addr == peer.sin_addr.s_addr);
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
        unsigned char *data = CMSG_DATA(at);
        size_t len = at->cmsg_len - CMSG_LEN(0);
        printf("  message %d %d of %zu bytes:", at->cmsg_level, at->cmsg_type, len);
        if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_PKTINFO && len == 12) {
            struct in_pktinfo *info = (void *)data;
            printf(" interface %d addresses equal %d", info->ipi_ifindex != 0, info->ipi_spec_dst.s_addr == info->ipi_addr.s_addr);
        } else if (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_PKTINFO && len == 20) {
            struct in6_pktinfo *info = (void *)data;
            printf(" interface %d mapped %d", info->ipi6_ifindex != 0, IN6_IS_ADDR_V4MAPPED(&info->ipi6_addr));
        } else if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_ORIGDSTADDR && len == 16) {
            struct sockaddr_in *name = (void *)data;
            printf(" family %d port %d", name->sin_family, name->sin_port != 0);
        } else if (len >= sizeof(struct sock_extended_err)) {
            struct sock_extended_err *error = (void *)data;
            struct sockaddr_in *who = (void *)SO_EE_OFFENDER(error);
            printf(" error %s origin %d type %d code %d info %u data %u offender family %d is the peer %d",
                   strerrorname_np(error->ee_errno), error->ee_origin, error->ee_type, error->ee_code,
                   error->ee_info, error->ee_data, who->sin_family,
                   who->sin_family == AF_INET && who->sin_addr.s_addr == peer.sin_addr.s_addr);
        } else if (at->cmsg_type != IP_PKTINFO) {
            for (size_t i = 0; i < len; i++) printf(" %02x", data[i]);
        }
        printf("\n");
    }
    return got;
}

/* Asks the peer how a datagram arrived. */
static void asked(int fd, const char *what) {
    char answer[100] = "";
    struct pollfd waits = {fd, POLLIN, 0};
    int seen = poll(&waits, 1, 3000);
    long got = seen > 0 ? recv(fd, answer, sizeof answer - 1, MSG_DONTWAIT) : -1;
    printf("%s: %s\n", what, got > 0 ? answer : strerrorname_np(errno));
}

static long send_with(int fd, size_t len, int level, int kind, const void *data, size_t data_len, const void *to, size_t to_len) {
    char control[64];
    memset(control, 0, sizeof control);
    struct iovec part = {text, len};
    struct msghdr message = {(void *)to, to_len, &part, 1, control, CMSG_SPACE(data_len), 0};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = level;
    header->cmsg_type = kind;
    header->cmsg_len = CMSG_LEN(data_len);
    memcpy(CMSG_DATA(header), data, data_len);
    return sendmsg(fd, &message, 0);
}

static int open_to_peer(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    connect(fd, (struct sockaddr *)&peer, sizeof peer);
    return fd;
}

static void marks(void) {
    int fd = open_to_peer();
    send(fd, "?", 1, 0);
    asked(fd, "as it is");
    set(fd, IPPROTO_IP, IP_TOS, 0x28);
    set(fd, IPPROTO_IP, IP_TTL, 33);
    send(fd, "?", 1, 0);
    asked(fd, "marked");
    text[0] = '?';
    int value = 0xb8, ttl = 5;
    printf("tos of one %s\n", result(send_with(fd, 1, IPPROTO_IP, IP_TOS, &value, sizeof value, NULL, 0)));
    asked(fd, "tos");
    unsigned char byte = 0x10;
    printf("tos in a byte %s\n", result(send_with(fd, 1, IPPROTO_IP, IP_TOS, &byte, 1, NULL, 0)));
    asked(fd, "tos");
    printf("ttl of one %s\n", result(send_with(fd, 1, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl, NULL, 0)));
    asked(fd, "ttl");
    for (int bad = -1; bad < 257; bad += 257) {
        printf("ttl %d %s\n", bad, result(send_with(fd, 1, IPPROTO_IP, IP_TTL, &bad, sizeof bad, NULL, 0)));
    }
    int large = 256;
    printf("ttl 256 %s\n", result(send_with(fd, 1, IPPROTO_IP, IP_TTL, &large, sizeof large, NULL, 0)));
    printf("tos 256 %s\n", result(send_with(fd, 1, IPPROTO_IP, IP_TOS, &large, sizeof large, NULL, 0)));
    printf("ttl in a byte %s\n", result(send_with(fd, 1, IPPROTO_IP, IP_TTL, &byte, 1, NULL, 0)));
    printf("unknown of IP %s\n", result(send_with(fd, 1, IPPROTO_IP, 99, &value, 4, NULL, 0)));
    printf("unknown of UDP %s\n", result(send_with(fd, 1, IPPROTO_UDP, 99, &value, 4, NULL, 0)));
    printf("unknown of the socket %s\n", result(send_with(fd, 1, SOL_SOCKET, 99, &value, 4, NULL, 0)));
    printf("unknown level %s\n", result(send_with(fd, 1, 99, 1, &value, 4, NULL, 0)));
    asked(fd, "that one");
    struct in_pktinfo none = {0};
    printf("no source %s\n", result(send_with(fd, 1, IPPROTO_IP, IP_PKTINFO, &none, sizeof none, NULL, 0)));
    asked(fd, "came");
    struct sockaddr_in own;
    socklen_t len = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &len);
    struct in_pktinfo source = {.ipi_spec_dst = own.sin_addr};
    printf("own source %s\n", result(send_with(fd, 1, IPPROTO_IP, IP_PKTINFO, &source, sizeof source, NULL, 0)));
    asked(fd, "came");
    inet_pton(AF_INET, "192.0.2.77", &source.ipi_spec_dst);
    printf("foreign source %s\n", result(send_with(fd, 1, IPPROTO_IP, IP_PKTINFO, &source, sizeof source, NULL, 0)));
    printf("short pktinfo %s\n", result(send_with(fd, 1, IPPROTO_IP, IP_PKTINFO, &source, 4, NULL, 0)));
    source = (struct in_pktinfo){.ipi_ifindex = 9999};
    printf("no such interface %s\n", result(send_with(fd, 1, IPPROTO_IP, IP_PKTINFO, &source, sizeof source, NULL, 0)));
    for (int bad = -2; bad < 258; bad += 129) set(fd, IPPROTO_IP, IP_TOS, bad);
    for (int bad = -2; bad < 258; bad += 129) set(fd, IPPROTO_IP, IP_TTL, bad);
    close(fd);
}

static void received(void) {
    static const int names[] = {IP_PKTINFO, IP_RECVTOS, IP_RECVTTL, IP_RECVORIGDSTADDR};
    int fd = open_to_peer();
    send(fd, "x", 1, 0);
    printf("nothing asked\n");
    told(fd, 100, 512, 0);
    for (int i = 0; i < 4; i++) {
        set(fd, IPPROTO_IP, names[i], 1);
        send(fd, "x", 1, 0);
        told(fd, 100, 512, 0);
    }
    for (size_t room = 0; room < 100; room += 7) {
        printf("room for %zu\n", room);
        send(fd, "xyz", 3, 0);
        told(fd, 2, room, 0);
    }
    printf("peeked, then read\n");
    send(fd, "xyz", 3, 0);
    told(fd, 2, 512, MSG_PEEK | MSG_TRUNC);
    told(fd, 2, 512, MSG_TRUNC);
    char buffer[8];
    struct iovec part = {buffer, sizeof buffer};
    struct msghdr message = {NULL, 0, &part, 1, (void *)-1L, 100, 0};
    send(fd, "x", 1, 0);
    poll(&(struct pollfd){fd, POLLIN, 0}, 1, 3000);
    printf("a bad address for messages %s", result(recvmsg(fd, &message, 0)));
    printf(" flags %x control %zu\n", message.msg_flags, (size_t)message.msg_controllen);
    message.msg_control = NULL;
    message.msg_controllen = 100;
    send(fd, "x", 1, 0);
    poll(&(struct pollfd){fd, POLLIN, 0}, 1, 3000);
    printf("none %s", result(recvmsg(fd, &message, 0)));
    printf(" flags %x control %zu\n", message.msg_flags, (size_t)message.msg_controllen);
    message.msg_control = (void *)-1L;
    message.msg_controllen = 100;
    printf("a bad address to send from %s\n", result(sendmsg(fd, &message, 0)));
    struct mmsghdr many[2] = {0};
    static char controls[2][256];
    for (int i = 0; i < 2; i++) {
        many[i].msg_hdr = (struct msghdr){NULL, 0, &part, 1, controls[i], 256, 0};
        send(fd, "xy", 2, 0);
    }
    usleep(300000);
    printf("recvmmsg %s", result(recvmmsg(fd, many, 2, 0, NULL)));
    printf(" control %zu %zu\n", (size_t)many[0].msg_hdr.msg_controllen, (size_t)many[1].msg_hdr.msg_controllen);
    struct timespec limits[] = {{-1, 1000000000}, {0, 1000000000}, {-1, 0}, {100, 0}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        send(fd, "x", 1, 0);
        poll(&(struct pollfd){fd, POLLIN, 0}, 1, 3000);
        printf("within %ld %ld", (long)limits[i].tv_sec, limits[i].tv_nsec);
        printf(" %s", result(recvmmsg(fd, many, 1, 0, &limits[i])));
        printf(" left %d\n", limits[i].tv_sec == 99);
    }
    close(fd);
}

static void of_both_families(void) {
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    set(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
    printf("to a mapped address %s\n", result(sendto(fd, "x", 1, 0, (struct sockaddr *)&mapped, sizeof mapped)));
    told(fd, 100, 512, 0);
    set(fd, IPPROTO_IP, IP_RECVTOS, 1);
    set(fd, IPPROTO_IP, IP_PKTINFO, 1);
    sendto(fd, "x", 1, 0, (struct sockaddr *)&mapped, sizeof mapped);
    told(fd, 100, 512, 0);
    set(fd, IPPROTO_IPV6, IPV6_TCLASS, 0x20);
    set(fd, IPPROTO_IP, IP_TOS, 0x40);
    set(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 9);
    sendto(fd, "?", 1, 0, (struct sockaddr *)&mapped, sizeof mapped);
    asked(fd, "a mapped address is marked");
    int value = 7;
    printf("a hop limit of IPv6 %s\n", result(send_with(fd, 1, IPPROTO_IPV6, IPV6_HOPLIMIT, &value, 4, &mapped, sizeof mapped)));
    asked(fd, "does not count");
    struct in6_pktinfo info = {0};
    printf("an address that is not mapped %s\n", result(send_with(fd, 1, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info, &mapped, sizeof mapped)));
    for (int bad = -2; bad < 258; bad += 129) set(fd, IPPROTO_IPV6, IPV6_TCLASS, bad);
    for (int bad = -2; bad < 258; bad += 129) set(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, bad);
    close(fd);
}

static void errors(void) {
    struct sockaddr_in closed = peer;
    closed.sin_port = htons(1);
    char byte;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    sendto(fd, "unasked", 7, 0, (struct sockaddr *)&closed, sizeof closed);
    struct pollfd waits = {fd, POLLIN | POLLOUT, 0};
    usleep(200000);
    printf("unconnected and not asked for: %d events %x\n", poll(&waits, 1, 0), waits.revents);
    set(fd, IPPROTO_IP, IP_RECVERR, 1);
    set(fd, IPPROTO_IP, IP_RECVTTL, 1);
    sendto(fd, "asked for", 9, 0, (struct sockaddr *)&closed, sizeof closed);
    waits.events = POLLIN;
    printf("poll %d", poll(&waits, 1, 3000));
    printf(" events %x\n", waits.revents);
    printf("it is there for the next call %s\n", result(recv(fd, &byte, 1, MSG_DONTWAIT)));
    printf("once %s\n", result(recv(fd, &byte, 1, MSG_DONTWAIT)));
    printf("still in the queue\n");
    waits.revents = 0;
    printf("poll %d", poll(&waits, 1, 0));
    printf(" events %x\n", waits.revents);
    told(fd, 100, 512, MSG_ERRQUEUE);
    printf("empty %s\n", result(recv(fd, &byte, 1, MSG_ERRQUEUE)));
    waits.revents = 0;
    printf("poll %d events %x\n", poll(&waits, 1, 0), waits.revents);
    sendto(fd, "read at once", 12, 0, (struct sockaddr *)&closed, sizeof closed);
    told(fd, 4, 512, MSG_ERRQUEUE);
    printf("then no error %s\n", result(recv(fd, &byte, 1, MSG_DONTWAIT)));
    printf("among datagrams\n");
    sendto(fd, "a", 1, 0, (struct sockaddr *)&peer, sizeof peer);
    usleep(100000);
    sendto(fd, "b", 1, 0, (struct sockaddr *)&closed, sizeof closed);
    usleep(100000);
    sendto(fd, "c", 1, 0, (struct sockaddr *)&closed, sizeof closed);
    usleep(100000);
    sendto(fd, "d", 1, 0, (struct sockaddr *)&peer, sizeof peer);
    usleep(100000);
    for (int turn = 0; turn < 5; turn++) printf(" %s", result(recv(fd, &byte, 1, MSG_DONTWAIT)));
    printf("\n");
    told(fd, 4, 512, MSG_ERRQUEUE);
    int error = -1;
    socklen_t len = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
    printf("of the next one: %d\n", error);
    told(fd, 4, 10, MSG_ERRQUEUE);
    for (int turn = 0; turn < 2; turn++) printf(" %s", result(recv(fd, &byte, 1, MSG_DONTWAIT)));
    printf("\n");
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    connect(fd, (struct sockaddr *)&closed, sizeof closed);
    send(fd, "x", 1, 0);
    waits = (struct pollfd){fd, POLLIN, 0};
    printf("connected: poll %d", poll(&waits, 1, 3000));
    printf(" events %x\n", waits.revents);
    printf(" %s", result(recv(fd, &byte, 1, MSG_DONTWAIT)));
    printf(" %s\n", result(recv(fd, &byte, 1, MSG_DONTWAIT)));
    close(fd);
    usleep(1200000); /* the peer's kernel does not send such messages faster for long */
    fd = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 closed6 = mapped;
    closed6.sin6_port = htons(1);
    set(fd, IPPROTO_IP, IP_RECVERR, 1);
    set(fd, IPPROTO_IPV6, IPV6_RECVERR, 1);
    sendto(fd, "over IPv6's socket", 18, 0, (struct sockaddr *)&closed6, sizeof closed6);
    told(fd, 100, 512, MSG_ERRQUEUE);
    close(fd);
}

static void lengths(void) {
    int fd = open_to_peer();
    set(fd, IPPROTO_IP, IP_RECVERR, 1);
    for (int mode = -1; mode <= 6; mode++) {
        set(fd, IPPROTO_IP, IP_MTU_DISCOVER, mode);
        printf("fits %s", result(send(fd, text, 1472, 0)));
        printf(" too long for the link %s\n", result(send(fd, text, 1473, 0)));
        usleep(100000);
        told(fd, 100, 512, MSG_ERRQUEUE);
        long total = 0, got;
        while (poll(&(struct pollfd){fd, POLLIN, 0}, 1, 150) > 0 && (got = recv(fd, text, sizeof text, MSG_DONTWAIT)) > 0) total += got;
        printf("came back %ld\n", total);
    }
    printf("longest %s", result(send(fd, text, 65508, 0)));
    printf(" nothing %s\n", result(send(fd, text, 0, 0)));
    close(fd);
}

/* To everybody on the link: who has not said so may not, and nobody has the port. */
static void broadcasts(void) {
    struct sockaddr_in all = peer;
    all.sin_addr.s_addr |= htonl(255);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    printf("sendto everybody %s", result(sendto(fd, "x", 1, 0, (struct sockaddr *)&all, sizeof all)));
    printf(" connect %s\n", result(connect(fd, (struct sockaddr *)&all, sizeof all)));
    set(fd, SOL_SOCKET, SO_BROADCAST, 1);
    printf("allowed %s\n", result(sendto(fd, "x", 1, 0, (struct sockaddr *)&all, sizeof all)));
    told(fd, 100, 512, 0);
    close(fd);
}

/* How many came back, and how many bytes. */
static void count(int fd) {
    static char buffer[70000];
    long number = 0, total = 0, got;
    while (poll(&(struct pollfd){fd, POLLIN, 0}, 1, 300) > 0 && (got = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT)) >= 0) {
        number++;
        total += got;
    }
    printf("  came back %ld in all %ld bytes\n", number, total);
}

static void segments(void) {
    text[0] = 'x';
    int fd = open_to_peer();
    static const struct { int len, size; } sends[] = {
        {5000, 1000}, {5000, 1200}, {1000, 1000}, {999, 1000}, {3000, 1472}, {3000, 1473}, {1000, 1473},
        {1280, 10}, {1290, 10}, {2000, 0}, {20000, 1400}, {60000, 1472},
    };
    for (size_t i = 0; i < sizeof sends / sizeof *sends; i++) {
        unsigned short size = sends[i].size;
        printf("%d bytes by %d: %s\n", sends[i].len, size,
               result(send_with(fd, sends[i].len, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size, NULL, 0)));
        count(fd);
    }
    int wrong = 1000;
    printf("an int %s\n", result(send_with(fd, 2000, IPPROTO_UDP, UDP_SEGMENT, &wrong, sizeof wrong, NULL, 0)));
    for (int value = -1; value < 70000; value += 35000) set(fd, IPPROTO_UDP, UDP_SEGMENT, value);
    set(fd, IPPROTO_UDP, UDP_SEGMENT, 700);
    printf("by the option %s\n", result(send(fd, text, 1500, 0)));
    count(fd);
    unsigned short none = 0;
    printf("and not this one %s\n", result(send_with(fd, 1400, IPPROTO_UDP, UDP_SEGMENT, &none, sizeof none, NULL, 0)));
    count(fd);
    set(fd, SOL_SOCKET, SO_NO_CHECK, 1);
    printf("without checksums %s", result(send(fd, text, 1500, 0)));
    printf(" %s\n", result(send(fd, text, 10, 0)));
    set(fd, IPPROTO_UDP, UDP_SEGMENT, 0);
    printf("one of them %s\n", result(send(fd, text, 1000, 0)));
    count(fd);
    printf("one in fragments %s\n", result(send(fd, text, 4000, 0)));
    count(fd);
    set(fd, SOL_SOCKET, SO_NO_CHECK, 0);
    set(fd, IPPROTO_UDP, UDP_GRO, 1);
    printf("as it comes %s\n", result(send(fd, text, 500, 0)));
    told(fd, 1000, 512, 0);
    set(fd, IPPROTO_UDP, 101, 1);
    set(fd, IPPROTO_UDP, 102, 1);
    close(fd);
}

/* Several datagrams in one, to a socket that takes them so and to one that does not. */
static void coalesced(void) {
    struct sockaddr_in own;
    socklen_t len = sizeof own;
    int connected = open_to_peer();
    getsockname(connected, (struct sockaddr *)&own, &len);
    close(connected);
    own.sin_port = 0;
    int to = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0);
    printf("of our own %s\n", result(bind(to, (struct sockaddr *)&own, sizeof own)));
    getsockname(to, (struct sockaddr *)&own, &len);
    static const struct { int len, size, gro, room; } sends[] = {
        {3000, 1000, 1, 65000}, {2500, 1000, 1, 65000}, {1000, 1000, 1, 65000}, {900, 1000, 1, 65000},
        {3000, 1000, 1, 1500}, {3000, 1000, 1, 0}, {3000, 1000, 0, 65000},
    };
    for (size_t i = 0; i < sizeof sends / sizeof *sends; i++) {
        unsigned short size = sends[i].size;
        set(to, IPPROTO_UDP, UDP_GRO, sends[i].gro);
        printf("%d bytes by %d: %s\n", sends[i].len, size,
               result(send_with(from, sends[i].len, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size, &own, sizeof own)));
        told(to, sends[i].room, 512, 0);
        count(to);
    }
    close(from);
    close(to);
}

static int answered(int fd) {
    static char answer[70000];
    struct pollfd waits = {fd, POLLIN, 0};
    poll(&waits, 1, 3000);
    return recv(fd, answer, sizeof answer, MSG_DONTWAIT);
}

/* One datagram that is sent in pieces: the peer sends it back as it comes. */
static void pieces(void) {
    int fd = open_to_peer(), on = 1, off = 0;
    printf("pieces %s", result(send(fd, text, 10, MSG_MORE)));
    printf(" %s", result(send(fd, text, 20, MSG_MORE)));
    printf(" %s", result(write(fd, text, 5)));
    printf(" came as %s\n", result(answered(fd)));
    printf("out of band %s\n", result(send(fd, text, 10, MSG_OOB)));
    printf("cork %s", result(setsockopt(fd, IPPROTO_UDP, UDP_CORK, &on, sizeof on)));
    printf(" %s", result(write(fd, text, 900)));
    printf(" %s", result(write(fd, text, 800)));
    struct pollfd waits = {fd, POLLIN, 0};
    printf(" nothing comes: %d", poll(&waits, 1, 100));
    printf(" uncork %s", result(setsockopt(fd, IPPROTO_UDP, UDP_CORK, &off, sizeof off)));
    printf(" came as %s\n", result(answered(fd)));
    unsigned short size = 100;
    printf("in segments %s", result(send_with(fd, 150, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size, NULL, 0)));
    for (int i = 0; i < 2; i++) printf(" %s", result(answered(fd)));
    setsockopt(fd, IPPROTO_UDP, UDP_CORK, &on, sizeof on);
    printf(" and in pieces %s", result(send_with(fd, 150, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size, NULL, 0)));
    printf(" %s", result(write(fd, text, 100)));
    setsockopt(fd, IPPROTO_UDP, UDP_CORK, &off, sizeof off);
    for (int i = 0; i < 3; i++) printf(" %s", result(answered(fd)));
    printf("\ntoo long %s", result(send(fd, text, 40000, MSG_MORE)));
    printf(" %s", result(send(fd, text, 25508, MSG_MORE)));
    printf(" %s", result(write(fd, text, 7)));
    printf(" came as %s\n", result(answered(fd)));
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    printf("to the first's %s", result(sendto(fd, text, 10, MSG_MORE, (struct sockaddr *)&peer, sizeof peer)));
    printf(" %s", result(write(fd, text, 3)));
    printf(" came as %s", result(answered(fd)));
    printf(" then %s\n", result(write(fd, text, 3)));
    close(fd);
}

/* A socket that had a peer, with a port of its own and without. */
static void loosened(void) {
    struct sockaddr_in here = {.sin_family = AF_INET}, none = {.sin_family = AF_UNSPEC};
    socklen_t len = sizeof here;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    bind(fd, (struct sockaddr *)&here, sizeof here);
    getsockname(fd, (struct sockaddr *)&here, &len);
    close(fd);
    for (int named = 0; named < 2; named++) {
        struct sockaddr_in own, to = here;
        fd = socket(AF_INET, SOCK_DGRAM, 0);
        if (!named) to.sin_port = 0;
        printf("bound %s", result(bind(fd, (struct sockaddr *)&to, sizeof to)));
        int mtu = -1;
        socklen_t room = sizeof mtu;
        printf(" mtu %s", result(getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &room)));
        connect(fd, (struct sockaddr *)&peer, sizeof peer);
        getsockname(fd, (struct sockaddr *)&own, &len);
        getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &room);
        printf(" %d", mtu);
        send(fd, "a", 1, 0);
        struct pollfd waits = {fd, POLLIN, 0};
        poll(&waits, 1, 3000);
        if (!named) printf(" answered %s", result(answered(fd)));
        printf(" loosened %s", result(connect(fd, (struct sockaddr *)&none, sizeof none)));
        printf(" has a peer %s", result(getpeername(fd, (struct sockaddr *)&to, &len)));
        getsockname(fd, (struct sockaddr *)&to, &len);
        printf(" its own port %d", named ? to.sin_port == here.sin_port : to.sin_port);
        printf(" sends %s\n", result(send(fd, "a", 1, 0)));
        if (named) {
            int other = socket(AF_INET, SOCK_DGRAM, 0);
            printf("waited %s", result(answered(fd)));
            printf(" another sends %s", result(sendto(other, "bc", 2, 0, (struct sockaddr *)&own, sizeof own)));
            printf(" and is heard %s\n", result(answered(fd)));
            close(other);
        }
        printf("again %s", result(connect(fd, (struct sockaddr *)&peer, sizeof peer)));
        printf(" %s", result(send(fd, "xyz", 3, 0)));
        printf(" %s\n", result(answered(fd)));
        close(fd);
    }
}

/* What recvmmsg fails with behind the first message, the next call tells. */
static void late_errors(void) {
    for (int next = 0; next < 3; next++) {
        char first[10];
        struct iovec parts[] = {{first, sizeof first}, {(void *)8, 10}};
        struct mmsghdr messages[] = {{.msg_hdr = {.msg_iov = &parts[0], .msg_iovlen = 1}},
                                     {.msg_hdr = {.msg_iov = &parts[1], .msg_iovlen = 1}}};
        int fd = open_to_peer();
        send(fd, "ab", 2, 0);
        send(fd, "cd", 2, 0);
        printf("the second fails: %s", result(recvmmsg(fd, messages, 2, 0, NULL)));
        struct pollfd waits = {fd, 0, 0};
        printf(" poll %d", poll(&waits, 1, 0));
        printf(" events %x", waits.revents);
        int error = -1;
        socklen_t len = sizeof error;
        if (next == 0) printf(" recv %s", result(recv(fd, first, sizeof first, MSG_DONTWAIT)));
        if (next == 1) printf(" send %s", result(send(fd, "ef", 2, 0)));
        if (next == 2) printf(" option %s", result(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len)));
        printf(" is %d", error);
        len = sizeof error;
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
        printf(" then %d\n", error);
        close(fd);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    peer.sin_family = AF_INET;
    peer.sin_port = htons(atoi(argv[2]));
    inet_pton(AF_INET, argv[1], &peer.sin_addr);
    mapped.sin6_family = AF_INET6;
    mapped.sin6_port = peer.sin_port;
    mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
    memcpy(mapped.sin6_addr.s6_addr + 12, &peer.sin_addr, 4);
    marks();
    received();
    of_both_families();
    errors();
    lengths();
    broadcasts();
    segments();
    coalesced();
    pieces();
    loosened();
    late_errors();
    return 0;
}

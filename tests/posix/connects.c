/* Checks of how connections are opened anew, from where, given up and lingered over. As probe.c.
   Usage: connects PEER-ADDRESS PORT */
#define _GNU_SOURCE
#include "probing.h"
#include <pthread.h>
#include <sys/syscall.h>

static struct sockaddr_in closed, silent;

static int name_of_peer(int fd) {
    struct sockaddr_in name;
    return getpeername(fd, (struct sockaddr *)&name, &(socklen_t){sizeof name});
}

static const char *connecting(int fd, const struct sockaddr_in *to) {
    return result(connect(fd, (const struct sockaddr *)to, sizeof *to));
}

static const char *error_of(int fd) {
    int error = int_option(fd, SOL_SOCKET, SO_ERROR);
    return error ? strerrorname_np(error) : "none";
}

/* Whether the peer echoes over a connection. */
static void echoed(int fd) {
    char byte = 0;
    struct timeval limit = {5, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    begin("echo %s", result(write(fd, "e1", 2)));
    poll_one(fd, POLLIN, 5000);
    more(" %s", result(read(fd, &byte, 1)));
    finish(" %c", byte);
}

static void again(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    begin("refused %s", connecting(fd, &closed));
    more(" name %s", result(name_of_peer(fd)));
    finish(" once more %s", connecting(fd, &closed));
    begin("then %s", connecting(fd, &peer));
    finish(" name %s", result(name_of_peer(fd)));
    echoed(fd);
    close(fd);
}

static void again_without_waiting(int asks) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), epoll = epoll_create1(0);
    struct epoll_event event = {EPOLLOUT, {.u64 = 1}};
    begin("begins %s", connecting(fd, &closed));
    finish(" name %s", result(name_of_peer(fd)));
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    say("ends %s", bits(poll_one(fd, POLLOUT, 5000)));
    begin("name %s", result(name_of_peer(fd)));
    if (asks) more(" error %s", error_of(fd));
    more(" told %s", connecting(fd, &closed));
    more(" error %s", error_of(fd));
    finish(" set %s", bits(wait_one(epoll, 0)));
    begin("anew %s", connecting(fd, &peer));
    more(" set %s", bits(wait_one(epoll, 5000)));
    more(" told %s", connecting(fd, &peer));
    finish(" name %s", result(name_of_peer(fd)));
    echoed(fd);
    close(fd);
    close(epoll);
}

/* The name that a refused connect leaves, which tells the port that it had. */
static void name_left(void) {
    struct sockaddr_in named, used;
    socklen_t len = sizeof named;
    int fd = socket(AF_INET, SOCK_STREAM, 0), other = socket(AF_INET, SOCK_STREAM, 0);
    begin("refused %s", connecting(fd, &closed));
    getsockname(fd, (struct sockaddr *)&named, &len);
    more(" any address %d a port %d", named.sin_addr.s_addr == 0, named.sin_port != 0);
    /* It is not the socket's any more. */
    more(" taken %s", result(bind(other, (struct sockaddr *)&named, sizeof named)));
    more(" connected %s", connecting(fd, &peer));
    getsockname(fd, (struct sockaddr *)&used, &len);
    more(" from it %d", used.sin_port == named.sin_port);
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    more(" disconnected %s", result(connect(fd, &nobody, sizeof nobody)));
    getsockname(fd, (struct sockaddr *)&named, &len);
    more(" any address %d its port %d", named.sin_addr.s_addr == 0, named.sin_port == used.sin_port);
    named = (struct sockaddr_in){.sin_family = AF_INET};
    more(" bound %s", result(bind(fd, (struct sockaddr *)&named, sizeof named)));
    getsockname(fd, (struct sockaddr *)&named, &len);
    finish(" any address %d another port %d", named.sin_addr.s_addr == 0, named.sin_port != used.sin_port);
    close(fd);
    close(other);
}

static void after_the_end(void) {
    char bytes[8];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    begin("begins %s", connecting(fd, &closed));
    poll_one(fd, POLLOUT, 5000);
    finish(" shutdown of a refused one %s", result(shutdown(fd, SHUT_RD)));
    close(fd);
    fd = open_to('r');
    begin("reset %s", result(read(fd, bytes, 1)));
    more(" name %s", result(name_of_peer(fd)));
    more(" shutdown %s", result(shutdown(fd, SHUT_WR)));
    finish(" connect %s", connecting(fd, &peer));
    close(fd);
    fd = open_to('c');
    begin("read %s", result(recv(fd, bytes, 3, MSG_WAITALL)));
    more(" end %s", result(read(fd, bytes, 1)));
    more(" name %s", result(name_of_peer(fd)));
    more(" shutdown %s", result(shutdown(fd, SHUT_WR)));
    for (int turn = 0; turn < 5000 && !name_of_peer(fd); turn++) usleep(1000);
    more(" then name %s", result(name_of_peer(fd)));
    finish(" shutdown %s", result(shutdown(fd, SHUT_RDWR)));
    close(fd);
}

/* Two ends on one host: what a reset after the end makes of the other one, once it is seen there. */
static void reset_by_itself(void) {
    int listener, fd = open_to('e');
    struct sockaddr_in own;
    socklen_t len = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &len);
    close(fd);
    own.sin_port = listen_at_any(&listener);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    begin("connect %s", connecting(fd, &own));
    int other = accept(listener, NULL, NULL);
    char byte;
    more(" shutdown %s", result(shutdown(other, SHUT_WR)));
    more(" end %s", result(read(fd, &byte, 1)));
    more(" write %s", result(write(fd, "a", 1)));
    more(" unread %s", bits(poll_one(other, POLLIN, 5000)));
    more(" close %s", result(close(other)));
    for (int turn = 0; turn < 5000 && !(poll_one(fd, 0, 1) & POLLERR); turn++) {}
    more(" then %s", bits(poll_one(fd, POLLIN | POLLOUT, 0)));
    more(" write %s", result(write(fd, "b", 1)));
    more(" once more %s", result(write(fd, "c", 1)));
    finish(" read %s", result(read(fd, &byte, 1)));
    close(fd);
    close(listener);
}

struct opening {
    int fd, id, error;
};

static void *opens(void *argument) {
    struct opening *opening = argument;
    __atomic_store_n(&opening->id, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    int failed = connect(opening->fd, (struct sockaddr *)&silent, sizeof silent);
    opening->error = failed ? errno : 0;
    return NULL;
}

/* A thread waits in connect for somebody who is silent, while another ends that. */
static void given_up(void) {
    static const char *const ways[] = {"read", "write", "both", "disconnect"};
    for (int how = 0; how < 4; how++) {
        struct opening opening = {socket(AF_INET, SOCK_STREAM, 0), 0, 0};
        pthread_t thread;
        pthread_create(&thread, NULL, opens, &opening);
        until_asleep(&opening.id);
        struct sockaddr nobody = {.sa_family = AF_UNSPEC};
        int ended = how < 3 ? shutdown(opening.fd, how) : connect(opening.fd, &nobody, sizeof nobody);
        begin("%s %s", ways[how], result(ended));
        pthread_join(thread, NULL);
        more(" told %s", opening.error ? strerrorname_np(opening.error) : "nothing");
        more(" error %s", error_of(opening.fd));
        finish(" anew %s", connecting(opening.fd, &peer));
        echoed(opening.fd);
        close(opening.fd);
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    begin("not waited for %s", connecting(fd, &silent));
    more(" shutdown %s", result(shutdown(fd, SHUT_WR)));
    more(" bits %s", bits(poll_one(fd, POLLIN | POLLOUT | POLLRDHUP, 0)));
    more(" error %s", error_of(fd));
    finish(" shutdown %s", result(shutdown(fd, SHUT_WR)));
    close(fd);
}

static void sources(void) {
    int on = 1, fd = open_to('q');
    struct sockaddr_in own, told;
    socklen_t len = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &len);
    close(fd);
    own.sin_port = 0;
    fd = socket(AF_INET, SOCK_STREAM, 0);
    begin("no port %s", result(setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on)));
    more(" bind %s", result(bind(fd, (struct sockaddr *)&own, sizeof own)));
    getsockname(fd, (struct sockaddr *)&told, &len);
    more(" port %d", ntohs(told.sin_port));
    more(" connect %s", connecting(fd, &peer));
    getsockname(fd, (struct sockaddr *)&told, &len);
    more(" from it %d", told.sin_addr.s_addr == own.sin_addr.s_addr && told.sin_port != 0);
    finish(" still %d", int_option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT));
    echoed(fd);
    close(fd);
    for (int connects = 0; connects < 2; connects++) {
        fd = socket(AF_INET, SOCK_DGRAM, 0);
        begin("datagrams %s", result(setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on)));
        more(" bind %s", result(bind(fd, (struct sockaddr *)&own, sizeof own)));
        getsockname(fd, (struct sockaddr *)&told, &len);
        more(" port %d", ntohs(told.sin_port));
        if (connects) more(" connect %s", connecting(fd, &peer));
        more(" send %s", result(sendto(fd, "x", 1, 0, connects ? NULL : (struct sockaddr *)&peer,
                                       connects ? 0 : sizeof peer)));
        getsockname(fd, (struct sockaddr *)&told, &len);
        more(" from it %d", told.sin_addr.s_addr == own.sin_addr.s_addr && told.sin_port != 0);
        finish(" still %d", int_option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT));
        close(fd);
    }
    /* An address that only the kernel sends from: how it ends is the kernel's matter. */
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    begin("from here %s", result(bind(fd, (struct sockaddr *)&own, sizeof own)));
    int failed = connect(fd, (struct sockaddr *)&peer, sizeof peer);
    finish(" its word %d", failed && (errno == EINVAL || errno == ENETUNREACH));
    close(fd);
}

static void families(void) {
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = peer.sin_port};
    struct sockaddr_storage longer = {0};
    mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
    memcpy(mapped.sin6_addr.s6_addr + 12, &peer.sin_addr, 4);
    memcpy(&longer, &peer, sizeof peer);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    say("of 6 to 4 %s", result(connect(fd, (struct sockaddr *)&mapped, sizeof mapped)));
    close(fd);
    fd = socket(AF_INET6, SOCK_STREAM, 0);
    begin("of 4 to 6 %s", connecting(fd, &peer));
    finish(" longer %s", result(connect(fd, (struct sockaddr *)&longer, sizeof mapped)));
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    begin("datagrams of 6 to 4 %s", result(connect(fd, (struct sockaddr *)&mapped, sizeof mapped)));
    finish(" %s", result(sendto(fd, "x", 1, 0, (struct sockaddr *)&mapped, sizeof mapped)));
    close(fd);
    fd = socket(AF_INET6, SOCK_DGRAM, 0);
    begin("of 4 to 6 %s", result(sendto(fd, "x", 1, 0, (struct sockaddr *)&peer, sizeof peer)));
    finish(" %s", connecting(fd, &peer));
    close(fd);
}

static char data[4 << 20];

static void timeouts(void) {
    struct timespec began;
    struct timeval time = {-1, 0}, told = {7, 7};
    socklen_t len = sizeof told;
    char byte;
    int room = 32768, fd = open_to('q');
    begin("less than none %s", result(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time)));
    more(" read %s", result(read(fd, &byte, 1)));
    getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &told, &len);
    finish(" told %ld", (long)(told.tv_sec + told.tv_usec));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    begin("connect %s", connecting(fd, &silent));
    finish(" again %s", connecting(fd, &silent));
    close(fd);
    /* Some room comes before the time is over, again and again. */
    fd = open_to('d');
    time = (struct timeval){0, 300000};
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    clock_gettime(CLOCK_MONOTONIC, &began);
    ssize_t sent = write(fd, data, sizeof data);
    long ms = elapsed_ms(began);
    begin("a part %d", sent > 0 && sent < (ssize_t)sizeof data);
    finish(" in time %d", ms >= 290 && ms < 2000);
    close(fd);
}

/* How long close lasts; what is written is more than the peer takes at once. */
static long closes(char what, int seconds, int flags) {
    struct timespec began;
    struct linger linger = {1, seconds};
    int room = 400000, fd = open_to(what);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    write(fd, data, 180000);
    fcntl(fd, F_SETFL, flags);
    clock_gettime(CLOCK_MONOTONIC, &began);
    int failed = close(fd);
    return failed ? -1 : elapsed_ms(began);
}

static void lingering(void) {
    long ms = closes('d', 9, 0);
    say("until all is there %d", ms >= 100 && ms < 5000);
    ms = closes('d', 9, O_NONBLOCK);
    say("also without waiting else %d", ms >= 100 && ms < 5000);
    ms = closes('s', 1, 0);
    say("no longer than that %d", ms >= 950 && ms < 1450);
}

struct closer {
    int fd, number;
};

static void *closes_later(void *of) {
    struct closer *closer = of;
    __atomic_store_n(&closer->number, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    close(closer->fd);
    return NULL;
}

/* While a close lingers, its number is nobody's: another thread's second close closed what came after. */
static void number_of_lingering(void) {
    struct linger linger = {1, 2};
    struct closer closer = {open_to('s')};
    int room = 400000, fd = closer.fd;
    pthread_t thread;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    write(fd, data, 180000);
    pthread_create(&thread, NULL, closes_later, &closer);
    until_asleep(&closer.number);
    begin("flags %s", result(fcntl(fd, F_GETFD)));
    more(" close %s", result(close(fd)));
    more(" anew %d", open_to('q') == fd);
    pthread_join(thread, NULL);
    finish(" closed %s", result(close(fd)));
}

static void without_waiting(void) {
    again_without_waiting(0);
    again_without_waiting(1);
}

struct reader {
    int fd, number, error;
    ssize_t got;
    char byte;
};

static void *reads(void *of) {
    struct reader *reader = of;
    __atomic_store_n(&reader->number, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    reader->got = recv(reader->fd, &reader->byte, 1, 0);
    reader->error = errno;
    return NULL;
}

/* A thread that waits for datagrams hears what another one's connect lets through. It slept for ever where
   only the engine could have brought something before. */
static void readers(void) {
    struct timeval limit = {5, 0};
    struct reader reader = {.fd = socket(AF_INET, SOCK_DGRAM, 0)};
    struct sockaddr_in own = {.sin_family = AF_INET}, none = {.sin_family = AF_UNSPEC};
    socklen_t len = sizeof own;
    int other = socket(AF_INET, SOCK_DGRAM, 0);
    pthread_t thread;
    setsockopt(reader.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    bind(reader.fd, (struct sockaddr *)&own, len);
    getsockname(reader.fd, (struct sockaddr *)&own, &len);
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    begin("connected %s", connecting(reader.fd, &silent));
    pthread_create(&thread, NULL, reads, &reader);
    until_asleep(&reader.number);
    more(" loosened %s", connecting(reader.fd, &none));
    more(" sent %s", result(sendto(other, "r", 1, 0, (struct sockaddr *)&own, sizeof own)));
    pthread_join(thread, NULL);
    errno = reader.error;
    finish(" heard %s", result(reader.got));
    close(reader.fd);
    close(other);
}

int main(int argc, char **argv) {
    static const struct check checks[] = {
        {"again", again}, {"without waiting", without_waiting}, {"after the end", after_the_end}, {"name left", name_left},
        {"reset by itself", reset_by_itself},
        {"given up", given_up}, {"sources", sources}, {"families", families},
        {"timeouts", timeouts}, {"lingering", lingering}, {"number of lingering", number_of_lingering},
        {"readers", readers},
    };
    if (argc != 3) return 2;
    closed.sin_family = AF_INET;
    closed.sin_port = htons(9);
    inet_pton(AF_INET, argv[1], &closed.sin_addr);
    silent = closed;
    silent.sin_addr.s_addr = (closed.sin_addr.s_addr & htonl(0xffffff00)) | htonl(200);
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}

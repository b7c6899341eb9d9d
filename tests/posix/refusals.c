/* Calls that fail: without free descriptors, on numbers that stand for something else, with bad addresses, in the
   wrong state; and the queue of errors. Prints the same on kernel sockets and under the library.
   Usage: refusals PEER-ADDRESS PORT (of peer) */
#define _GNU_SOURCE
#include "probing.h"
#include "sharing.h"
#include <linux/errqueue.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>

/* Leaves no free number below the limit. */
static void leave_no_number(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    int next = dup(0);
    close(next);
    limit.rlim_cur = next;
    setrlimit(RLIMIT_NOFILE, &limit);
}
static void leave_numbers(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 2048 ? limit.rlim_max : 2048;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void makes_in_vain(int fd) {
    int both[2];
    leave_no_number();
    begin("socket %s", result(socket(AF_INET, SOCK_STREAM, 0)));
    more(" datagrams %s", result(socket(AF_INET, SOCK_DGRAM, 0)));
    more(" dup %s", result(dup(fd)));
    more(" F_DUPFD %s", result(fcntl(fd, F_DUPFD, 0)));
    more(" dup2 %s", result(dup2(fd, 5000)));
    more(" epoll %s", result(epoll_create1(0)));
    more(" pair %s", result(socketpair(AF_UNIX, SOCK_STREAM, 0, both)));
    finish(" pipe %s", result(pipe(both)));
    leave_numbers();
    use_connected(fd);
}
static void made_in_vain(void) {
    int fd = open_to('e');
    makes_in_vain(fd);
    in_child(makes_in_vain, fd);
    close(fd);
}

static void accepts_in_vain(int listener) {
    poll_one(listener, POLLIN, 10000);
    leave_no_number();
    begin("accept %s", result(accept(listener, NULL, NULL)));
    finish(" accept4 %s", result(accept4(listener, NULL, NULL, SOCK_NONBLOCK)));
    leave_numbers();
    int fd = accept(listener, NULL, NULL);
    say("polls %s", bits(poll_one(listener, POLLIN, 0)));
    use_accepted(fd);
    close(fd);
}
static void accepted_in_vain(void) {
    int listener;
    unsigned short port = listen_at_any(&listener), first = call_back(port);
    accepts_in_vain(listener);
    int second = call_back(port);
    in_child(accepts_in_vain, listener);
    close(first);
    close(second);
    close(listener);
}

static void taken_in_vain(void) {
    int fd = open_to('e'), ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    pass(ends[0], &fd, 1);
    leave_no_number();
    struct taken taken = take_with(ends[1], CMSG_SPACE(sizeof(int)), 0);
    say("took %d cut %d", taken.count, !!(taken.flags & MSG_CTRUNC));
    leave_numbers();
    use_connected(fd);
    close(fd);
    close(ends[0]);
    close(ends[1]);
}

/* Every call of sockets on one number. */
static void calls_on(int fd) {
    char byte = 'x';
    int value = 0;
    struct sockaddr_in name = {.sin_family = AF_INET};
    socklen_t len = sizeof name, value_len = sizeof value;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct mmsghdr several = {message, 0};
    begin("bind %s", result(bind(fd, (struct sockaddr *)&name, sizeof name)));
    more(" listen %s", result(listen(fd, 1)));
    more(" accept %s", result(accept(fd, NULL, NULL)));
    more(" accept4 %s", result(accept4(fd, NULL, NULL, 0)));
    more(" flags %s", result(accept4(fd, NULL, NULL, 1)));
    more(" getsockname %s", result(getsockname(fd, (struct sockaddr *)&name, &len)));
    len = sizeof name;
    finish(" getpeername %s", result(getpeername(fd, (struct sockaddr *)&name, &len)));
    begin("getsockopt %s", result(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &value_len)));
    more(" none %s", result(getsockopt(fd, SOL_SOCKET, 9999, &value, &value_len)));
    more(" setsockopt %s", result(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value)));
    more(" short %s", result(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, 1)));
    finish(" shutdown %s", result(shutdown(fd, 9)));
    begin("send %s", result(send(fd, &byte, 1, MSG_NOSIGNAL)));
    more(" sendto %s", result(sendto(fd, &byte, 1, MSG_NOSIGNAL, NULL, 0)));
    more(" sendmsg %s", result(sendmsg(fd, &message, MSG_NOSIGNAL)));
    more(" sendmmsg %s", result(sendmmsg(fd, &several, 1, MSG_NOSIGNAL)));
    more(" oob %s", result(send(fd, &byte, 1, MSG_OOB | MSG_NOSIGNAL)));
    finish(" nothing %s", result(send(fd, NULL, 0, MSG_NOSIGNAL)));
    begin("recv %s", result(recv(fd, &byte, 1, MSG_DONTWAIT)));
    more(" recvfrom %s", result(recvfrom(fd, &byte, 1, MSG_DONTWAIT, NULL, NULL)));
    more(" recvmsg %s", result(recvmsg(fd, &message, MSG_DONTWAIT)));
    more(" recvmmsg %s", result(recvmmsg(fd, &several, 1, MSG_DONTWAIT, NULL)));
    more(" oob %s", result(recv(fd, &byte, 1, MSG_OOB | MSG_DONTWAIT)));
    finish(" errors %s", result(recv(fd, &byte, 1, MSG_ERRQUEUE)));
}

static void on_closed(void) { calls_on(900000); }
static void on_negative(void) { calls_on(-1); }
static void on_file(void) {
    int file = memfd_create("file", 0);
    calls_on(file);
    close(file);
}
static void on_pipe(void) {
    int ends[2];
    pipe(ends);
    calls_on(ends[0]);
    close(ends[0]);
    close(ends[1]);
}
static void on_number_of_closed(void) {
    int fd = open_to('e');
    close(fd);
    calls_on(fd);
}
static void on_fresh(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), value = -1;
    begin("accept %s", result(accept(fd, NULL, NULL)));
    more(" recv %s", result(recv(fd, &value, 1, MSG_DONTWAIT)));
    more(" send %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
    more(" shutdown %s", result(shutdown(fd, SHUT_WR)));
    more(" oob %s", result(recv(fd, &value, 1, MSG_OOB)));
    more(" queued %s", result(ioctl(fd, FIONREAD, &value)));
    finish(" mark %s", result(ioctl(fd, SIOCATMARK, &value)));
    close(fd);
}
static void on_connected(void) {
    int fd = open_to('e');
    struct sockaddr_in own = {.sin_family = AF_INET}, bad = {.sin_family = 77};
    begin("listen %s", result(listen(fd, 1)));
    more(" accept %s", result(accept(fd, NULL, NULL)));
    more(" bind %s", result(bind(fd, (struct sockaddr *)&own, sizeof own)));
    more(" connect %s", result(connect(fd, (struct sockaddr *)&peer, sizeof peer)));
    more(" short %s", result(connect(fd, (struct sockaddr *)&peer, 1)));
    more(" family %s", result(connect(fd, (struct sockaddr *)&bad, sizeof bad)));
    more(" shutdown %s", result(shutdown(fd, 3)));
    more(" sendto %s", result(sendto(fd, "x", 1, 0, (struct sockaddr *)&peer, sizeof peer)));
    finish(" ioctl %s", result(ioctl(fd, 0x1234)));
    close(fd);
}
static void on_relayed(void) {
    int fd = open_to('e');
    in_child(talks, fd);
    struct sockaddr_in own = {.sin_family = AF_INET};
    begin("listen %s", result(listen(fd, 1)));
    more(" accept %s", result(accept(fd, NULL, NULL)));
    more(" bind %s", result(bind(fd, (struct sockaddr *)&own, sizeof own)));
    more(" connect %s", result(connect(fd, (struct sockaddr *)&peer, sizeof peer)));
    finish(" shutdown %s", result(shutdown(fd, 3)));
    close(fd);
}
static void on_listener(void) {
    int listener = make_listener();
    char byte;
    begin("recv %s", result(recv(listener, &byte, 1, MSG_DONTWAIT)));
    more(" send %s", result(send(listener, &byte, 1, MSG_NOSIGNAL)));
    more(" connect %s", result(connect(listener, (struct sockaddr *)&peer, sizeof peer)));
    more(" flags %s", result(accept4(listener, NULL, NULL, 1)));
    nonblocking(listener);
    more(" accept %s", result(accept(listener, NULL, NULL)));
    more(" again %s", result(listen(listener, 3)));
    finish(" polls %s", bits(poll_one(listener, POLLIN | POLLOUT, 0)));
    close(listener);
}

/* Memory that nobody can use. */
static void bad_memory(int fd) {
    char *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int file = memfd_create("file", 0), ends[2], set = epoll_create1(0);
    struct timespec *bad_time = (struct timespec *)none;
    struct pollfd asked = {fd, POLLIN, 0};
    struct epoll_event event;
    char byte;
    /* The compiler is not to know of them. */
    volatile int less = -1, many = 1025;
    struct iovec part = {&byte, 1}, bad = {none, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct mmsghdr several = {message, 0};
    socklen_t len = 16;
    write(file, "file", 4);
    pipe(ends);
    write(ends[1], "pipe", 4);
    begin("sendfile %s", result(sendfile(fd, file, (off_t *)none, 1)));
    more(" recvfrom %s", result(recvfrom(fd, none, 1, MSG_DONTWAIT, NULL, NULL)));
    more(" ppoll %s", result(syscall(SYS_ppoll, &asked, 1, none, NULL, 8)));
    more(" ppoll mask %s", result(syscall(SYS_ppoll, &asked, 1, NULL, none, 8)));
    more(" recvmmsg time %s", result(recvmmsg(fd, &several, 1, MSG_DONTWAIT, bad_time)));
    finish(" epoll_ctl %s", result(epoll_ctl(set, EPOLL_CTL_ADD, fd, (void *)none)));
    begin("SIOCATMARK %s", result(ioctl(fd, SIOCATMARK, none)));
    more(" TIOCOUTQ %s", result(ioctl(fd, TIOCOUTQ, none)));
    more(" F_SETOWN_EX %s", result(fcntl(fd, F_SETOWN_EX, none)));
    more(" F_GETOWN_EX %s", result(fcntl(fd, F_GETOWN_EX, none)));
    more(" linger %s", result(setsockopt(fd, SOL_SOCKET, SO_LINGER, none, sizeof(struct linger))));
    more(" time %s", result(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, none, sizeof(struct timeval))));
    finish(" info %s", result(getsockopt(fd, IPPROTO_TCP, TCP_INFO, none, &len)));
    begin("oob %s", result(send(fd, none, 1, MSG_OOB)));
    more(" peek %s", result(recv(fd, none, 1, MSG_PEEK | MSG_DONTWAIT)));
    more(" readv %s", result(readv(fd, &bad, less)));
    more(" writev %s", result(writev(fd, &bad, less)));
    more(" many %s", result(writev(fd, &bad, many)));
    more(" length %s", result(write(fd, none, 0)));
    finish(" getpeername %s", result(getpeername(fd, (void *)none, (void *)none)));
    begin("epoll_pwait %s", result(epoll_pwait(set, &event, 1, 0, (void *)none)));
    more(" count %s", result(epoll_wait(set, &event, 0, 0)));
    volatile nfds_t count = 1 << 30;
    finish(" poll %s", result(poll(&asked, count, 0)));
    use_connected(fd);
    close(file);
    close(ends[0]);
    close(ends[1]);
    close(set);
    munmap(none, 4096);
}
static void bad_memory_here(void) {
    int fd = open_to('e');
    bad_memory(fd);
    close(fd);
}
static void bad_memory_in_child(void) {
    int fd = open_to('e');
    in_child(bad_memory, fd);
    close(fd);
}

/* Errors that wait in a queue. */
static void next_error(int fd, size_t room, int flags) {
    char byte[64], control[512];
    struct sockaddr_in from = {0};
    struct iovec part = {byte, sizeof byte};
    struct msghdr message = {&from, sizeof from, &part, 1, control, room, 0};
    ssize_t got = recvmsg(fd, &message, MSG_ERRQUEUE | flags);
    begin("error %s", result(got));
    if (got >= 0) {
        more(" flags %#x to %d", message.msg_flags, from.sin_port == peer.sin_port + htons(1));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (header) {
            struct sock_extended_err *error = (struct sock_extended_err *)CMSG_DATA(header);
            more(" %d %d: %d %d %d %d", header->cmsg_level, header->cmsg_type, error->ee_errno, error->ee_origin,
                 error->ee_type, error->ee_code);
        }
    }
    finish("");
}

static int refused_datagrams(void) {
    struct sockaddr_in to = peer;
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
    to.sin_port = peer.sin_port + htons(1);
    connect(fd, (struct sockaddr *)&to, sizeof to);
    return fd;
}
static void await_error(int fd) {
    write(fd, "refused", 7);
    for (int turn = 0; turn < 100 && !(poll_one(fd, POLLIN, 100) & POLLERR); turn++) {}
}

static void queue_of_datagrams(void) {
    char byte;
    int fd = refused_datagrams();
    next_error(fd, 512, 0);
    await_error(fd);
    next_error(fd, 512, MSG_PEEK);
    next_error(fd, 512, MSG_DONTWAIT);
    next_error(fd, 512, 0);
    say("polls %s", bits(poll_one(fd, POLLIN | POLLOUT, 0)));
    await_error(fd);
    next_error(fd, 0, 0);
    await_error(fd);
    next_error(fd, CMSG_SPACE(4), 0);
    await_error(fd);
    begin("read %s", result(recv(fd, &byte, 1, MSG_DONTWAIT)));
    finish(" option %d", int_option(fd, SOL_SOCKET, SO_ERROR));
    next_error(fd, 512, 0);
    close(fd);
}
static void queue_of_streams(void) {
    int fd = open_to('e'), on = 1;
    next_error(fd, 512, 0);
    setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
    next_error(fd, 512, 0);
    in_child(use_connected, fd);
    next_error(fd, 512, 0);
    next_error(fd, 512, MSG_PEEK);
    close(fd);
}

int main(int argc, char **argv) {
    const struct check checks[] = {
        {"no numbers", made_in_vain}, {"no numbers: accept", accepted_in_vain},
        {"no numbers: take", taken_in_vain}, {"on a closed one", on_closed},
        {"on a negative one", on_negative}, {"on a file", on_file}, {"on a pipe", on_pipe},
        {"on one just closed", on_number_of_closed}, {"on a fresh one", on_fresh},
        {"on a connected one", on_connected}, {"on a relayed one", on_relayed},
        {"on a listener", on_listener}, {"bad memory", bad_memory_here},
        {"bad memory in a child", bad_memory_in_child}, {"errors of datagrams", queue_of_datagrams},
        {"errors of streams", queue_of_streams},
    };
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}

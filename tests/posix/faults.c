/* Addresses of memory that cannot be read or written, in every place of a call that takes one. Prints the
   same on kernel sockets and under the library.
   Usage: faults PEER-ADDRESS PORT (of the program peer) */
#define _GNU_SOURCE
#include "probing.h"
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>

#define PAGE 4096
static char *last; /* the last page that can be used; the next one cannot */
static char *none; /* cannot be used at all */
static char *fixed; /* can only be read */
static char room[64];

/* Memory that was good a moment ago, so that nobody is fooled by what was known of it. */
static void prepare(void) {
    last = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fixed = last + 2 * PAGE;
    none = last + PAGE;
    int fd = open_to('e');
    for (char *at = last; at < last + 3 * PAGE; at += PAGE) {
        memcpy(at, "good", 4);
        write(fd, at, 4);
        recv(fd, at, 4, MSG_WAITALL);
    }
    close(fd);
    mprotect(none, PAGE, PROT_NONE);
    mprotect(fixed, PAGE, PROT_READ);
    munmap(last + 3 * PAGE, PAGE);
}

static struct msghdr with(void *name, void *parts, size_t count, void *control, size_t len) {
    return (struct msghdr){.msg_name = name, .msg_namelen = name ? 16 : 0, .msg_iov = parts,
                           .msg_iovlen = count, .msg_control = control, .msg_controllen = len};
}

/* Everything that says where bytes come from, and go to. */
static void transfers(int fd, int datagrams) {
    struct iovec good = {room, 4}, bad = {none, 4}, two[2] = {{room, 4}, {none, 4}};
    struct msghdr in_part = with(NULL, &bad, 1, NULL, 0), of_parts = with(NULL, none, 1, NULL, 0);
    struct msghdr plain = with(NULL, &good, 1, NULL, 0);
    struct mmsghdr several[2] = {{plain, 0}, {in_part, 0}};
    memcpy(room, "1234", 4);
    begin("write %s", result(write(fd, none, 4)));
    more(" send %s", result(send(fd, none, 4, 0)));
    more(" sendto %s", result(sendto(fd, none, 4, 0, NULL, 0)));
    more(" writev %s", result(writev(fd, &bad, 1)));
    more(" its parts %s", result(writev(fd, (void *)none, 1)));
    more(" sendmsg %s", result(sendmsg(fd, (void *)none, 0)));
    more(" its part %s", result(sendmsg(fd, &in_part, 0)));
    more(" its parts %s", result(sendmsg(fd, &of_parts, 0)));
    more(" sendmmsg %s", result(sendmmsg(fd, (void *)none, 1, 0)));
    finish(" its second %s", result(sendmmsg(fd, several, 2, 0)));
    begin("came %s", result(recv(fd, room, 4, 0)));
    struct msghdr of_control = with(NULL, &good, 1, none, 24);
    more(" control %s", result(sendmsg(fd, &of_control, 0)));
    if (datagrams) more(" later part %s", result(writev(fd, two, 2)));
    finish(" read only %s", result(write(fd, fixed, 4)));
    begin("came %s", result(recv(fd, room, 4, 0)));
    finish(" %.4s", room);
    /* Bytes are there to be read, and go on being there. */
    write(fd, "abcd", 4);
    poll_one(fd, POLLIN, 5000);
    if (!datagrams) {
        begin("read %s", result(read(fd, none, 4)));
        more(" recv %s", result(recv(fd, fixed, 4, 0)));
        more(" recvfrom %s", result(recvfrom(fd, none, 4, 0, NULL, NULL)));
        more(" readv %s", result(readv(fd, &bad, 1)));
        more(" its parts %s", result(readv(fd, (void *)none, 1)));
        more(" its part %s", result(recvmsg(fd, &in_part, 0)));
    } else {
        begin("peeked %s", result(recv(fd, none, 4, MSG_PEEK)));
    }
    more(" its parts %s", result(recvmsg(fd, &of_parts, 0)));
    more(" recvmsg %s", result(recvmsg(fd, (void *)none, 0)));
    finish(" recvmmsg %s", result(recvmmsg(fd, (void *)none, 1, 0, NULL)));
    begin("left %s", result(recv(fd, room, sizeof room, MSG_DONTWAIT)));
    finish(" %.4s", room);
    /* A buffer that is said to be longer than it is, and does for what comes. */
    write(fd, "efgh", 4);
    poll_one(fd, POLLIN, 5000);
    begin("long %s", result(recv(fd, none - 8, 4 * PAGE, 0)));
    finish(" %.4s", none - 8);
    if (datagrams) {
        write(fd, "ijkl", 4);
        poll_one(fd, POLLIN, 5000);
        begin("lost %s", result(recv(fd, none - 2, 4, 0)));
        finish(" then %s", result(recv(fd, room, 4, MSG_DONTWAIT)));
        return;
    }
    /* Where not all can be taken or given at once, nothing is. */
    begin("ends %s", result(write(fd, none - 3, 8)));
    more(" parts %s", result(writev(fd, two, 2)));
    write(fd, "qrst", 4);
    poll_one(fd, POLLIN, 5000);
    more(" to parts %s", result(readv(fd, two, 2)));
    write(fd, "qrst", 4);
    poll_one(fd, POLLIN, 5000);
    more(" to end %s", result(recv(fd, none - 2, 4, 0)));
    more(" came %s", result(recv(fd, room, sizeof room, 0)));
    finish(" %.4s", room);
}

static void streams(void) {
    int fd = open_to('e');
    transfers(fd, 0);
    close(fd);
}

static void datagrams(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    connect(fd, (struct sockaddr *)&peer, sizeof peer);
    transfers(fd, 1);
    begin("to %s", result(sendto(fd, room, 4, 0, (void *)none, 16)));
    write(fd, "mnop", 4);
    poll_one(fd, POLLIN, 5000);
    struct iovec good = {room, 4};
    struct msghdr named = with(none, &good, 1, NULL, 0);
    socklen_t len = 16;
    more(" name %s", result(recvmsg(fd, &named, MSG_PEEK)));
    more(" from %s", result(recvfrom(fd, room, 4, MSG_PEEK, (void *)none, &len)));
    finish(" long %s", result(recvfrom(fd, room, 4, 0, (void *)room + 16, (void *)none)));
    /* Room for control messages that is said to be longer than it is, and does for what comes. */
    int on = 1;
    setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof on);
    write(fd, "qrst", 4);
    poll_one(fd, POLLIN, 5000);
    struct msghdr told = with(NULL, &good, 1, none - 64, 4 * PAGE);
    begin("told %s", result(recvmsg(fd, &told, 0)));
    struct cmsghdr *first = CMSG_FIRSTHDR(&told);
    finish(" %zu %d %d", (size_t)told.msg_controllen, told.msg_flags,
           first && first->cmsg_level == IPPROTO_IP && first->cmsg_type == IP_TTL);
    close(fd);
}

/* Of the kernel's own sockets. */
static void others(void) {
    int ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    struct iovec good = {room, 4};
    struct msghdr control = with(NULL, &good, 1, none, 24), parts = with(NULL, none, 1, NULL, 0);
    struct mmsghdr several[2] = {{control, 0}, {parts, 0}};
    begin("sendmsg %s", result(sendmsg(ends[0], (void *)none, 0)));
    more(" control %s", result(sendmsg(ends[0], &control, 0)));
    more(" parts %s", result(sendmsg(ends[0], &parts, 0)));
    more(" sendmmsg %s", result(sendmmsg(ends[0], (void *)none, 1, 0)));
    more(" its control %s", result(sendmmsg(ends[0], several, 2, 0)));
    write(ends[0], "a", 1);
    more(" recvmsg %s", result(recvmsg(ends[1], (void *)none, 0)));
    finish(" recvmmsg %s", result(recvmmsg(ends[1], (void *)none, 1, 0, NULL)));
    close(ends[0]);
    close(ends[1]);
}

static void names(void) {
    int fd = open_to('e'), other = socket(AF_INET, SOCK_STREAM, 0), listener, bad_call;
    socklen_t len = 16;
    begin("%s", result(getsockname(fd, (void *)none, &len)));
    more(" %s", result(getsockname(fd, (void *)room, (void *)none)));
    more(" %s", result(getpeername(fd, NULL, &len)));
    more(" %s", result(bind(other, (void *)none, 16)));
    more(" %s", result(connect(other, (void *)none, 16)));
    len = 4;
    more(" %s", result(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, none, &len)));
    more(" %s", result(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, room, (void *)none)));
    more(" %s", result(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, none, 4)));
    more(" %s", result(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, room, -1)));
    finish(" %s", result(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, fixed, 4)));
    begin("%s", result(ioctl(fd, FIONREAD, none)));
    more(" %s", result(ioctl(fd, FIONREAD, fixed)));
    more(" %s", result(ioctl(fd, FIONBIO, none)));
    memset(room, 0, 8);
    finish(" %s", result(ioctl(fd, FIONBIO, fixed)));
    unsigned short port = listen_at_any(&listener);
    bad_call = call_back(port);
    poll_one(listener, POLLIN, 5000);
    len = 16;
    begin("accept %s", result(accept(listener, (void *)none, &len)));
    nonblocking(listener);
    finish(" then %s", result(accept(listener, NULL, NULL)));
    close(bad_call);
    close(listener);
    close(other);
    close(fd);
}

static void waits(void) {
    int fd = open_to('e'), set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u64 = 7}};
    struct timeval time = {0, 0};
    begin("%s", result(epoll_ctl(set, EPOLL_CTL_ADD, fd, (void *)none)));
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    write(fd, "x", 1);
    poll_one(fd, POLLIN, 5000);
    more(" %s", result(epoll_wait(set, (void *)none, 1, 0)));
    more(" %s", result(epoll_wait(set, (void *)(none - PAGE), 1000, 0)));
    more(" %s", result(poll((void *)none, 1, 0)));
    finish(" %s", result(select(fd + 1, (void *)none, NULL, NULL, &time)));
    close(set);
    close(fd);
}

int main(int argc, char **argv) {
    const struct check checks[] = {
        {"prepare", prepare}, {"streams", streams}, {"datagrams", datagrams},
        {"others", others}, {"names", names}, {"waits", waits},
    };
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}

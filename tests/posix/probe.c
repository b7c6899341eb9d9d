/* Checks of socket behaviour against a peer. Prints what it sees, one line each, nothing that
   depends on the machine: run on kernel sockets and under the library, it must print the same.
   Usage: probe PEER-ADDRESS PORT */
#define _GNU_SOURCE
#include "probing.h"
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static volatile int pipes;

static void options(void) {
    int fd = open_to('e');
    begin("type %d", int_option(fd, SOL_SOCKET, SO_TYPE));
    more(" domain %d", int_option(fd, SOL_SOCKET, SO_DOMAIN));
    more(" protocol %d", int_option(fd, SOL_SOCKET, SO_PROTOCOL));
    finish(" listening %d", int_option(fd, SOL_SOCKET, SO_ACCEPTCONN));
    int on = 1, idle = 30;
    begin("set %s", result(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on)));
    more(" %s", result(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on)));
    more(" %s", result(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle)));
    finish(" %s", result(setsockopt(fd, IPPROTO_TCP, 12345, &idle, sizeof idle)));
    begin("get %d", int_option(fd, IPPROTO_TCP, TCP_NODELAY) != 0);
    more(" %d", int_option(fd, SOL_SOCKET, SO_KEEPALIVE) != 0);
    finish(" %d", int_option(fd, IPPROTO_TCP, TCP_KEEPIDLE));
    struct linger linger = {1, 5}, told = {0, 0};
    socklen_t len = sizeof told;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    getsockopt(fd, SOL_SOCKET, SO_LINGER, &told, &len);
    say("linger %d %d in %d bytes", told.l_onoff, told.l_linger, len);
    struct timeval time = {2, 500000}, back = {0, 0};
    len = sizeof back;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &back, &len);
    say("timeout %ld.%06ld", (long)back.tv_sec, (long)back.tv_usec);
    char name[16];
    len = sizeof name;
    begin("congestion %s", result(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len)));
    finish(" known %d", strlen(name) > 0);
    struct tcp_info info;
    len = sizeof info;
    memset(&info, 0, sizeof info);
    begin("info %s", result(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len)));
    finish(" state %d", info.tcpi_state);
    struct sockaddr_in6 big;
    socklen_t room = sizeof big;
    begin("peer %s", result(getpeername(fd, (struct sockaddr *)&big, &room)));
    more(" length %d", room);
    finish(" family %d", big.sin6_family);
    room = 4;
    begin("short name %s", result(getsockname(fd, (struct sockaddr *)&big, &room)));
    finish(" length %d", room);
    close(fd);
    begin("after close %s", result(read(fd, name, 1)));
    finish(" %s", result(getsockopt(fd, SOL_SOCKET, SO_TYPE, name, &len)));
}

static void transfer(void) {
    int fd = open_to('e'), waiting = -1;
    char buffer[200000], copy[200000];
    say("nothing yet %s", result(recv(fd, buffer, 10, MSG_DONTWAIT)));
    say("write %s", result(write(fd, "abcdef", 6)));
    poll_one(fd, POLLIN, 5000);
    ioctl(fd, FIONREAD, &waiting);
    begin("unread %d", waiting);
    finish(" peek %s", result(recv(fd, buffer, 3, MSG_PEEK)));
    char one[2], two[10];
    struct iovec parts[2] = {{one, 2}, {two, 10}};
    begin("readv %s", result(readv(fd, parts, 2)));
    more(" %.2s", one);
    finish(" %.4s", two);
    struct iovec out[3] = {{"12", 2}, {"", 0}, {"345", 3}};
    say("writev %s", result(writev(fd, out, 3)));
    begin("waitall %s", result(recv(fd, buffer, 5, MSG_WAITALL)));
    finish(" %.5s", buffer);
    for (size_t i = 0; i < sizeof buffer; i++) buffer[i] = i * 7 % 251;
    say("large write %s", result(write(fd, buffer, sizeof buffer)));
    begin("large waitall %s", result(recv(fd, copy, sizeof copy, MSG_WAITALL)));
    finish(" same %d", memcmp(buffer, copy, sizeof copy) == 0);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    write(fd, "xyz", 3);
    poll_one(fd, POLLIN, 5000);
    struct sockaddr_in from;
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    begin("recvmsg %s", result(recvmsg(fd, &message, 0)));
    more(" name %d", message.msg_namelen);
    finish(" flags %d", message.msg_flags);
    begin("zero %s", result(read(fd, buffer, 0)));
    finish(" %s", result(write(fd, buffer, 0)));
    struct iovec bad[2] = {{one, 2}, {(void *)8, 4}};
    begin("bad buffer %s", result(write(fd, NULL, 4)));
    more(" %s", result(send(fd, (void *)-1, 4, 0)));
    more(" %s", result(writev(fd, NULL, 1)));
    bad[0].iov_base = NULL;
    finish(" %s", result(writev(fd, bad, 2)));
    write(fd, "bad", 3);
    poll_one(fd, POLLIN, 5000);
    begin("bad room %s", result(read(fd, NULL, 3)));
    more(" %s", result(recv(fd, (void *)-1, 3, 0)));
    more(" %s", result(readv(fd, bad, 2)));
    message.msg_iov = NULL;
    message.msg_iovlen = 1;
    finish(" %s", result(recvmsg(fd, &message, 0)));
    begin("then %s", result(recv(fd, buffer, 3, MSG_WAITALL)));
    finish(" %.3s", buffer);
    int file = memfd_create("content", 0);
    write(file, buffer, 50000);
    off_t at = 100;
    begin("sendfile %s", result(sendfile(fd, file, &at, 20000)));
    finish(" at %ld", (long)at);
    begin("came %s", result(recv(fd, copy, 20000, MSG_WAITALL)));
    finish(" same %d", memcmp(buffer + 100, copy, 20000) == 0);
    lseek(file, 49990, SEEK_SET);
    say("sendfile to the end %s", result(sendfile(fd, file, NULL, 100)));
    say("came %s", result(recv(fd, copy, 10, MSG_WAITALL)));
    say("lseek %s", result(lseek(fd, 0, SEEK_CUR)));
    close(file);
    close(fd);
    fd = open_to('t');
    begin("trickle waitall %s", result(recv(fd, buffer, 5, MSG_WAITALL)));
    finish(" %.5s", buffer);
    close(fd);
}

static void on_pipe(int signal) { (void)signal; pipes++; }

static void endings(void) {
    char buffer[16];
    signal(SIGPIPE, on_pipe);
    int fd = open_to('h');
    say("read %s", result(recv(fd, buffer, 3, MSG_WAITALL)));
    poll_one(fd, POLLRDHUP, 5000);
    say("half closed %s", bits(poll_one(fd, POLLIN | POLLOUT | POLLRDHUP, 1000)));
    begin("end %s", result(read(fd, buffer, 16)));
    more(" %s", result(read(fd, buffer, 16)));
    finish(" write %s", result(write(fd, "x", 1)));
    say("shutdown %s", result(shutdown(fd, SHUT_WR)));
    begin("write %s", result(write(fd, "x", 1)));
    finish(" signals %d", pipes);
    begin("send %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
    finish(" signals %d", pipes);
    poll_one(fd, 0, 300);
    say("both closed %s", bits(poll_one(fd, POLLIN | POLLOUT | POLLRDHUP, 1000)));
    close(fd);
    fd = open_to('r');
    poll_one(fd, POLLRDHUP, 5000);
    say("reset %s", bits(poll_one(fd, POLLIN | POLLOUT | POLLRDHUP, 1000)));
    begin("read %s", result(read(fd, buffer, 16)));
    finish(" then %s", result(read(fd, buffer, 16)));
    pipes = 0;
    begin("write %s", result(write(fd, "x", 1)));
    finish(" signals %d", pipes);
    say("pending error %d", int_option(fd, SOL_SOCKET, SO_ERROR));
    close(fd);
    fd = open_to('r');
    poll_one(fd, POLLRDHUP, 5000);
    say("reset as option %s", strerrorname_np(int_option(fd, SOL_SOCKET, SO_ERROR)));
    begin("then %d", int_option(fd, SOL_SOCKET, SO_ERROR));
    finish(" read %s", result(read(fd, buffer, 16)));
    close(fd);
    fd = open_to('q');
    begin("shutdown for reading %s", result(shutdown(fd, SHUT_RD)));
    finish(" read %s", result(read(fd, buffer, 16)));
    say("%s", bits(poll_one(fd, POLLIN | POLLOUT | POLLRDHUP, 1000)));
    close(fd);
    signal(SIGPIPE, SIG_IGN);
}

static void connecting(void) {
    struct sockaddr_in closed = peer;
    closed.sin_port = htons(9);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    say("refused %s", result(connect(fd, (struct sockaddr *)&closed, sizeof closed)));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    say("refused later %s", result(connect(fd, (struct sockaddr *)&closed, sizeof closed)));
    poll_one(fd, POLLOUT, 5000);
    say("%s", bits(poll_one(fd, POLLIN | POLLOUT | POLLRDHUP, 0)));
    begin("why %s", strerrorname_np(int_option(fd, SOL_SOCKET, SO_ERROR)));
    finish(" then %d", int_option(fd, SOL_SOCKET, SO_ERROR));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    begin("unconnected read %s", result(read(fd, &closed, 1)));
    finish(" name %s", result(getpeername(fd, (struct sockaddr *)&closed, &(socklen_t){16})));
    say("connect %s", result(connect(fd, (struct sockaddr *)&peer, sizeof peer)));
    say("writable %s", bits(poll_one(fd, POLLOUT, 5000)));
    begin("error %d", int_option(fd, SOL_SOCKET, SO_ERROR));
    finish(" again %s", result(connect(fd, (struct sockaddr *)&peer, sizeof peer)));
    say("flags nonblock %d", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    say("read %s", result(read(fd, &closed, 1)));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in here = {.sin_family = AF_INET};
    say("bind %s", result(bind(fd, (struct sockaddr *)&here, sizeof here)));
    say("connect bound %s", result(connect(fd, (struct sockaddr *)&peer, sizeof peer)));
    write(fd, "e1", 2);
    char byte = 0;
    begin("works %s", result(read(fd, &byte, 1)));
    finish(" %c", byte);
    close(fd);
}

static void timeouts(void) {
    int fd = open_to('q');
    struct timespec began;
    char byte;
    struct timeval time = {0, 100000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    clock_gettime(CLOCK_MONOTONIC, &began);
    say("read %s", result(read(fd, &byte, 1)));
    long ms = elapsed_ms(began);
    say("in time %d", ms >= 95 && ms < 1000);
    clock_gettime(CLOCK_MONOTONIC, &began);
    say("poll %d", poll_one(fd, POLLIN, 50));
    ms = elapsed_ms(began);
    say("in time %d", ms >= 48 && ms < 1000);
    struct timeval rest = {0, 50000};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    begin("select %s", result(select(fd + 1, &set, NULL, NULL, &rest)));
    more(" set %d", FD_ISSET(fd, &set) != 0);
    finish(" rest %ld", (long)rest.tv_usec);
    FD_SET(fd, &set);
    begin("select to write %s", result(select(fd + 1, NULL, &set, NULL, NULL)));
    finish(" set %d", FD_ISSET(fd, &set) != 0);
    close(fd);
}

static void epolls(void) {
    int epoll = epoll_create1(EPOLL_CLOEXEC), fd = open_to('e');
    char byte;
    struct epoll_event event = {EPOLLIN, {.u64 = 0x1234567890abcdefULL}}, got;
    begin("add %s", result(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)));
    finish(" again %s", result(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)));
    say("nothing %d", wait_one(epoll, 20));
    write(fd, "ab", 2);
    say("event %s", result(epoll_wait(epoll, &got, 1, 5000)));
    begin("its word %d", got.data.u64 == 0x1234567890abcdefULL);
    finish(" bits %s", bits(got.events));
    say("level %s", bits(wait_one(epoll, 1000)));
    read(fd, &byte, 1);
    say("still %s", bits(wait_one(epoll, 1000)));
    read(fd, &byte, 1);
    say("no more %d", wait_one(epoll, 20));
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    say("mod %s", result(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event)));
    say("edge %s", bits(wait_one(epoll, 1000)));
    say("once %d", wait_one(epoll, 20));
    write(fd, "c", 1);
    poll_one(fd, POLLIN, 5000);
    say("edge %s", bits(wait_one(epoll, 1000) & ~EPOLLOUT));
    begin("mod %s", result(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event)));
    finish(" rearmed %s", bits(wait_one(epoll, 1000)));
    event.events = EPOLLIN | EPOLLONESHOT;
    epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
    say("one shot %s", bits(wait_one(epoll, 1000)));
    say("then %d", wait_one(epoll, 20));
    epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
    say("again %s", bits(wait_one(epoll, 1000)));
    int note = eventfd(1, EFD_NONBLOCK);
    event.events = EPOLLIN;
    epoll_ctl(epoll, EPOLL_CTL_ADD, note, &event);
    epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
    struct epoll_event many[8];
    int seen = 0;
    for (int i = 0; i < 100 && seen < 2; i++) {
        usleep(1000);
        seen = epoll_wait(epoll, many, 8, 1000);
    }
    say("kernel and socket %d", seen);
    int outer = epoll_create1(0);
    epoll_ctl(outer, EPOLL_CTL_ADD, epoll, &event);
    epoll_ctl(epoll, EPOLL_CTL_DEL, note, NULL);
    begin("nested %s", bits(wait_one(outer, 1000)));
    finish(" polled %s", bits(poll_one(epoll, POLLIN, 1000)));
    close(outer);
    begin("del %s", result(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL)));
    finish(" again %s", result(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL)));
    say("gone %d", wait_one(epoll, 20));
    close(fd);
    close(note);
    /* Registered before it is connected. */
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    event.events = EPOLLOUT | EPOLLIN | EPOLLET;
    say("early add %s", result(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)));
    wait_one(epoll, 20);
    connect(fd, (struct sockaddr *)&peer, sizeof peer);
    int ready = 0;
    for (int i = 0; i < 100 && !(ready & EPOLLOUT); i++) ready = wait_one(epoll, 50);
    say("connected %s", bits(ready));
    write(fd, "e!", 2);
    ready = 0;
    for (int i = 0; i < 100 && !(ready & EPOLLIN); i++) ready = wait_one(epoll, 50);
    say("readable %s", bits(ready));
    close(fd);
    say("closed %d", wait_one(epoll, 20));
    close(epoll);
}

static void duplicates(void) {
    int fd = open_to('e');
    char buffer[8];
    int copy = dup(fd), high = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    begin("dup %d", copy >= 0);
    more(" at least %d", high >= 100);
    finish(" cloexec %d", fcntl(high, F_GETFD));
    nonblocking(copy);
    say("shared flag %d", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    close(fd);
    write(copy, "12", 2);
    poll_one(high, POLLIN, 5000);
    begin("read by the other %s", result(read(high, buffer, 8)));
    finish(" %.2s", buffer);
    int other = open_to('e');
    say("dup2 %d", dup2(other, high) == high);
    fcntl(other, F_SETFL, 0);
    write(high, "7", 1);
    begin("read %s", result(read(other, buffer, 1)));
    finish(" %c", buffer[0]);
    close(other);
    write(high, "8", 1);
    begin("read %s", result(read(high, buffer, 1)));
    finish(" %c", buffer[0]);
    close(high);
    write(copy, "9", 1);
    poll_one(copy, POLLIN, 5000);
    say("first lives %s", result(read(copy, buffer, 8)));
    close(copy);
    /* A set keeps an interest until the last duplicate is closed. */
    int epoll = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u64 = 7}};
    fd = open_to('e');
    copy = dup(fd);
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    close(fd);
    write(copy, "d", 1);
    begin("set keeps %s", bits(wait_one(epoll, 5000)));
    finish(" without number %s", result(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL)));
    close(copy);
    say("set loses %d", wait_one(epoll, 20));
    /* The same for a socket that is connected later. */
    fd = socket(AF_INET, SOCK_STREAM, 0);
    copy = dup(fd);
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    close(fd);
    connect(copy, (struct sockaddr *)&peer, sizeof peer);
    write(copy, "e!", 2);
    int ready = 0;
    for (int i = 0; i < 100 && ready != EPOLLIN; i++) ready = wait_one(epoll, 50);
    say("set keeps %s", bits(ready));
    close(copy);
    say("set loses %d", wait_one(epoll, 20));
    close(epoll);
    int file = open("/dev/null", O_RDWR);
    say("number is a file's %s", result(write(file, "x", 1)));
    close(file);
}

/* A listener and a connection that the peer made to it. */
static int called_back(int listener, int *control) {
    struct sockaddr_in here;
    socklen_t len = sizeof here;
    getsockname(listener, (struct sockaddr *)&here, &len);
    *control = open_to('b');
    write(*control, &here.sin_port, 2);
    return poll_one(listener, POLLIN, 5000);
}

static void listeners(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), control, on = 1;
    char buffer[8];
    struct sockaddr_in here = {.sin_family = AF_INET}, from;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    begin("bind %s", result(bind(fd, (struct sockaddr *)&here, sizeof here)));
    finish(" listen %s", result(listen(fd, 8)));
    begin("listening %d", int_option(fd, SOL_SOCKET, SO_ACCEPTCONN));
    finish(" flags %d", fcntl(fd, F_GETFL) & O_NONBLOCK);
    say("read %s", result(read(fd, buffer, 1)));
    nonblocking(fd);
    say("accept %s", result(accept(fd, NULL, NULL)));
    say("nobody %d", poll_one(fd, POLLIN, 20));
    say("somebody %s", bits(called_back(fd, &control)));
    socklen_t len = sizeof from;
    int new = accept4(fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    say("accepted %d from the peer %d length %d", new >= 0, from.sin_addr.s_addr == peer.sin_addr.s_addr, len);
    begin("nonblock %d", (fcntl(new, F_GETFL) & O_NONBLOCK) != 0);
    more(" cloexec %d", fcntl(new, F_GETFD));
    finish(" nodelay %d", int_option(new, IPPROTO_TCP, TCP_NODELAY) != 0);
    poll_one(new, POLLIN, 5000);
    begin("hello %s", result(read(new, buffer, 8)));
    finish(" %.5s", buffer);
    say("nothing %s", result(read(new, buffer, 8)));
    close(new);
    close(control);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    called_back(fd, &control);
    new = accept(fd, NULL, NULL);
    begin("blocking accept nonblock %d", (fcntl(new, F_GETFL) & O_NONBLOCK) != 0);
    finish(" cloexec %d", fcntl(new, F_GETFD));
    say("read %s", result(recv(new, buffer, 5, MSG_WAITALL)));
    close(new);
    close(control);
    struct timeval time = {0, 50000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    say("accept in vain %s", result(accept(fd, NULL, NULL)));
    int epoll = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.fd = fd}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    say("epoll nobody %d", wait_one(epoll, 20));
    called_back(fd, &control);
    say("epoll somebody %s", bits(wait_one(epoll, 5000)));
    new = accept(fd, NULL, NULL);
    say("epoll nobody more %d", wait_one(epoll, 20));
    close(new);
    close(control);
    /* Inherited by a child, as by a server that forks its workers. */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        int mine;
        say("in the child %s", bits(poll_one(fd, POLLIN, 5000)));
        mine = accept(fd, NULL, NULL);
        begin("read %s", result(recv(mine, buffer, 5, MSG_WAITALL)));
        finish(" %.5s", buffer);
        close(mine);
        _exit(0);
    }
    usleep(300000);
    int status = 0;
    struct sockaddr_in at;
    len = sizeof at;
    getsockname(fd, (struct sockaddr *)&at, &len);
    control = open_to('b');
    write(control, &at.sin_port, 2);
    waitpid(child, &status, 0);
    say("child %d", status);
    close(control);
    close(epoll);
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    say("port free again %s", result(bind(fd, (struct sockaddr *)&at, sizeof at)));
    close(fd);
    fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6}, who;
    bind(fd, (struct sockaddr *)&any, sizeof any);
    listen(fd, 8);
    len = sizeof any;
    getsockname(fd, (struct sockaddr *)&any, &len);
    control = open_to('b');
    write(control, &any.sin6_port, 2);
    len = sizeof who;
    new = accept(fd, (struct sockaddr *)&who, &len);
    say("dual stack %d family %d mapped %d", new >= 0, who.sin6_family == AF_INET6, IN6_IS_ADDR_V4MAPPED(&who.sin6_addr) != 0);
    say("domain %d", int_option(new, SOL_SOCKET, SO_DOMAIN) == AF_INET6);
    close(new);
    close(control);
    close(fd);
}

static void forks(void) {
    int fd = open_to('e');
    char buffer[8];
    for (int leave = 0; leave < 2; leave++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (leave == 0) close(fd);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        write(fd, "ok", 2);
        begin("after a child %s", result(recv(fd, buffer, 2, MSG_WAITALL)));
        finish(" %.2s", buffer);
    }
    pid_t child = vfork();
    if (child == 0) {
        close(fd);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    write(fd, "ok", 2);
    say("after a vfork child %s", result(recv(fd, buffer, 2, MSG_WAITALL)));
    close(fd);
}

static void *reader(void *argument) {
    static char byte[8];
    return (void *)(long)recv((int)(long)argument, byte, 3, MSG_WAITALL);
}

static void *poller(void *argument) { return (void *)(long)poll_one((int)(long)argument, POLLIN, 5000); }

static void threads(void) {
    pthread_t blocked, polling;
    void *got;
    int one = open_to('e'), two = open_to('e');
    pthread_create(&blocked, NULL, reader, (void *)(long)one);
    pthread_create(&polling, NULL, poller, (void *)(long)two);
    usleep(50000);
    write(one, "abc", 3);
    pthread_join(blocked, &got);
    say("blocked reader %ld", (long)got);
    write(two, "x", 1);
    pthread_join(polling, &got);
    say("blocked poller %s", bits((int)(long)got));
    close(one);
    close(two);
}

/* A thread that waits on a UDP socket which has not sent yet. */
struct waiting {
    int fd, id;
    long (*wait)(int fd);
};

static void *waits(void *argument) {
    struct waiting *waiting = argument;
    __atomic_store_n(&waiting->id, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    return (void *)waiting->wait(waiting->fd);
}

static long by_recv(int fd) {
    char buffer[16];
    return recv(fd, buffer, sizeof buffer, 0);
}

static long by_poll(int fd) {
    int seen = poll_one(fd, POLLIN, 5000);
    return seen == POLLIN ? by_recv(fd) : -1;
}

static long by_epoll(int fd) {
    int set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.fd = fd}};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    int count = epoll_wait(set, &event, 1, 5000);
    close(set);
    return count == 1 ? by_recv(fd) : -1;
}

/* What one thread sends on a fresh socket is answered to another that has been waiting there. */
static void early_receivers(void) {
    static const struct { const char *name; long (*wait)(int fd); } ways[] = {
        {"recv", by_recv}, {"poll", by_poll}, {"epoll", by_epoll},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct waiting waiting = {socket(AF_INET, SOCK_DGRAM, 0), 0, ways[i].wait};
        struct timeval limit = {5, 0};
        setsockopt(waiting.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        pthread_t thread;
        void *got;
        pthread_create(&thread, NULL, waits, &waiting);
        until_asleep(&waiting.id);
        sendto(waiting.fd, "early", 5, 0, (struct sockaddr *)&peer, sizeof peer);
        pthread_join(thread, &got);
        say("an early %s got %ld", ways[i].name, (long)got);
        close(waiting.fd);
    }
}

/* What the kernel brings to a UDP socket comes with its control messages. */
static void control_messages(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    struct sockaddr_in here = {.sin_family = AF_INET};
    socklen_t len = sizeof here;
    setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof on);
    bind(fd, (struct sockaddr *)&here, sizeof here);
    getsockname(fd, (struct sockaddr *)&here, &len);
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    say("to itself %s", result(sendto(from, "abc", 3, 0, (struct sockaddr *)&here, sizeof here)));
    char buffer[16], control[64];
    struct iovec part = {buffer, sizeof buffer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    begin("came %s", result(recvmsg(fd, &message, 0)));
    struct cmsghdr *first = CMSG_FIRSTHDR(&message);
    finish(" with its TTL %d", first && first->cmsg_level == IPPROTO_IP && first->cmsg_type == IP_TTL);
    say("errors waiting %s", result(recv(fd, buffer, sizeof buffer, MSG_ERRQUEUE)));
    close(fd);
    close(from);
}

static void datagrams(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    char buffer[3000], large[1400];
    struct sockaddr_in from, here = {.sin_family = AF_INET};
    socklen_t len = sizeof from;
    memset(large, 'z', sizeof large);
    say("bind %s", result(bind(fd, (struct sockaddr *)&here, sizeof here)));
    say("nothing %s", result(recv(fd, buffer, sizeof buffer, MSG_DONTWAIT)));
    say("sendto %s", result(sendto(fd, "abc", 3, 0, (struct sockaddr *)&peer, sizeof peer)));
    say("readable %s", bits(poll_one(fd, POLLIN, 5000)));
    say("peek %s", result(recv(fd, buffer, 2, MSG_PEEK | MSG_TRUNC)));
    begin("recvfrom %s", result(recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &len)));
    finish(" from the peer %d", from.sin_port == peer.sin_port && from.sin_addr.s_addr == peer.sin_addr.s_addr);
    sendto(fd, large, sizeof large, 0, (struct sockaddr *)&peer, sizeof peer);
    struct iovec part = {buffer, 100};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = &from, .msg_namelen = sizeof from};
    begin("cut %s", result(recvmsg(fd, &message, 0)));
    finish(" flags %d", message.msg_flags == MSG_TRUNC);
    sendto(fd, "", 0, 0, (struct sockaddr *)&peer, sizeof peer);
    say("empty %s", result(recv(fd, buffer, sizeof buffer, 0)));
    say("unconnected send %s", result(send(fd, "x", 1, 0)));
    say("connect %s", result(connect(fd, (struct sockaddr *)&peer, sizeof peer)));
    begin("send %s", result(send(fd, "hello", 5, 0)));
    finish(" recv %s", result(recv(fd, buffer, sizeof buffer, 0)));
    say("writable %s", bits(poll_one(fd, POLLIN | POLLOUT, 1000)));
    say("peer %s", result(getpeername(fd, (struct sockaddr *)&from, &len)));
    say("too large %s", result(send(fd, buffer, 65536 - 20, 0)));
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    say("unbound connect %s", result(connect(fd, (struct sockaddr *)&peer, sizeof peer)));
    struct mmsghdr batch[3] = {0};
    struct iovec parts[3] = {{"1", 1}, {"22", 2}, {"333", 3}};
    for (int i = 0; i < 3; i++) { batch[i].msg_hdr.msg_iov = &parts[i]; batch[i].msg_hdr.msg_iovlen = 1; }
    say("sendmmsg %s", result(sendmmsg(fd, batch, 3, 0)));
    long total = 0;
    for (int i = 0; i < 3; i++) total += recv(fd, buffer, sizeof buffer, 0);
    say("came %ld", total);
    struct timeval time = {0, 50000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    say("in vain %s", result(recv(fd, buffer, sizeof buffer, 0)));
    close(fd);
    early_receivers();
    control_messages();
}

static void urgent(void) {
    char buffer[16];
    int on = 1, left = 0;
    int fd = open_to('u');
    say("told %s", bits(poll_one(fd, POLLPRI, 5000)));
    ioctl(fd, FIONREAD, &left);
    say("before the mark %d", left);
    say("at the mark %d", sockatmark(fd));
    say("peeked %s", result(recv(fd, buffer, 5, MSG_OOB | MSG_PEEK)));
    begin("out of band %s", result(recv(fd, buffer, 5, MSG_OOB)));
    finish(" %c", buffer[0]);
    say("again %s", result(recv(fd, buffer, 5, MSG_OOB)));
    say("told %s", bits(poll_one(fd, POLLIN | POLLPRI, 0)));
    say("read %s", result(read(fd, buffer, sizeof buffer)));
    say("at the mark %d", sockatmark(fd));
    say("nothing %s", result(recv(fd, buffer, sizeof buffer, MSG_DONTWAIT)));
    say("sent %s", result(send(fd, "x?", 2, MSG_OOB)));
    begin("read %s", result(recv(fd, buffer, 4, MSG_WAITALL)));
    finish(" %.4s", buffer);
    say("none %s", result(recv(fd, buffer, 5, MSG_OOB)));
    close(fd);
    fd = open_to('u');
    say("inline %s", result(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on)));
    say("is %d", int_option(fd, SOL_SOCKET, SO_OOBINLINE));
    say("told %s", bits(poll_one(fd, POLLPRI, 5000)));
    say("out of band %s", result(recv(fd, buffer, 5, MSG_OOB)));
    say("read %s", result(read(fd, buffer, sizeof buffer)));
    say("at the mark %d", sockatmark(fd));
    say("read %s", result(read(fd, buffer, sizeof buffer)));
    int epoll = epoll_create1(0);
    struct epoll_event event = {EPOLLPRI, {.fd = fd}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    say("no more %s", result(epoll_wait(epoll, &event, 1, 0)));
    close(epoll);
    close(fd);
}

static void on_alarm(int signal) { (void)signal; }

static int disconnect(int fd) {
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    return connect(fd, &nobody, sizeof nobody);
}

/* What a socket is that connect(2) to no address has ended, and that it can be connected anew. */
static void anew(int fd, int epoll) {
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    char buffer[8];
    begin("ended %s", result(disconnect(fd)));
    more(" peer %s", result(getpeername(fd, (struct sockaddr *)&name, &len)));
    more(" epoll %s", bits(wait_one(epoll, 0)));
    more(" poll %s", bits(poll_one(fd, POLLIN | POLLOUT, 0)));
    more(" error %d", int_option(fd, SOL_SOCKET, SO_ERROR));
    more(" and %d", int_option(fd, SOL_SOCKET, SO_ERROR));
    more(" epoll %s", bits(wait_one(epoll, 0)));
    more(" read %s", result(read(fd, buffer, 1)));
    finish(" write %s", result(write(fd, buffer, 1)));
    begin("state %d", int_option(fd, IPPROTO_TCP, TCP_INFO) & 255);
    more(" nodelay %d", int_option(fd, IPPROTO_TCP, TCP_NODELAY));
    more(" keepidle %d", int_option(fd, IPPROTO_TCP, TCP_KEEPIDLE));
    more(" nonblock %d", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    finish(" cloexec %d", fcntl(fd, F_GETFD));
    begin("again %s", result(connect(fd, (struct sockaddr *)&peer, sizeof peer)));
    if (errno == EINPROGRESS) more(" %s", bits(poll_one(fd, POLLOUT, 5000) & POLLOUT));
    more(" nodelay %d", int_option(fd, IPPROTO_TCP, TCP_NODELAY));
    finish(" written %s", result(write(fd, "eback", 5)));
    begin("epoll %s", bits(wait_one(epoll, 5000) & ~POLLOUT));
    poll_one(fd, POLLIN, 5000);
    more(" read %s", result(recv(fd, buffer, 4, 0)));
    finish(" %.4s", buffer);
    len = sizeof name;
    getpeername(fd, (struct sockaddr *)&name, &len);
    say("the peer %d", name.sin_addr.s_addr == peer.sin_addr.s_addr && name.sin_port == peer.sin_port);
}

static void disconnecting(void) {
    int fd = open_to('q'), epoll = epoll_create1(0), control, idle = 77;
    struct epoll_event event = {EPOLLIN, {.u64 = 1}};
    struct sockaddr_in here = {.sin_family = AF_INET}, name;
    socklen_t len = sizeof name;
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    say("another family %s", result(connect(fd, &(struct sockaddr){.sa_family = AF_UNIX}, sizeof peer)));
    int copy = dup(fd), other = epoll_create1(0);
    epoll_ctl(other, EPOLL_CTL_ADD, copy, &event);
    close(copy);
    anew(fd, epoll);
    write(fd, "x", 1);
    say("by a number that is closed %s", bits(wait_one(other, 5000)));
    close(other);
    say("twice %s %s", result(disconnect(fd)), result(disconnect(fd)));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    begin("fresh %s", result(disconnect(fd)));
    finish(" error %d", int_option(fd, SOL_SOCKET, SO_ERROR));
    bind(fd, (struct sockaddr *)&here, sizeof here);
    getsockname(fd, (struct sockaddr *)&here, &len);
    listen(fd, 8);
    called_back(fd, &control);
    int new = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    copy = dup(new);
    epoll_ctl(epoll, EPOLL_CTL_ADD, new, &event);
    setsockopt(new, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    anew(new, epoll);
    say("by its other number %s", result(write(copy, "x", 1)));
    close(copy);
    close(new);
    close(control);
    begin("listener %s", result(disconnect(fd)));
    more(" listens %d", int_option(fd, SOL_SOCKET, SO_ACCEPTCONN));
    more(" accept %s", result(accept(fd, NULL, NULL)));
    len = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &len);
    more(" same port %d", name.sin_port == here.sin_port);
    finish(" listen %s", result(listen(fd, 8)));
    say("somebody %s", bits(called_back(fd, &control)));
    new = accept(fd, NULL, NULL);
    say("read %s", result(recv(new, &name, 5, MSG_WAITALL)));
    close(new);
    close(control);
    close(fd);
    close(epoll);
}

static void signals(void) {
    int fd = open_to('q');
    char byte;
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    ualarm(50000, 0);
    say("interrupted read %s", result(read(fd, &byte, 1)));
    ualarm(50000, 0);
    say("interrupted poll %s", result(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 5000)));
    int epoll = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.fd = fd}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    ualarm(50000, 0);
    say("interrupted epoll %s", result(epoll_wait(epoll, &event, 1, 5000)));
    close(epoll);
    close(fd);
}

int main(int argc, char **argv) {
    static const struct check checks[] = {
        {"options", options}, {"transfer", transfer}, {"endings", endings},
        {"connecting", connecting}, {"timeouts", timeouts}, {"epoll", epolls},
        {"duplicates", duplicates}, {"listeners", listeners}, {"forks", forks},
        {"threads", threads}, {"datagrams", datagrams}, {"signals", signals},
        {"urgent", urgent}, {"disconnecting", disconnecting},
    };
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}

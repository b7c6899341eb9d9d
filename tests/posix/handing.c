/* Connections that several processes have: by fork, by exec, by messages. Prints the same on kernel sockets
   and under the library. Usage: handing PEER-ADDRESS PORT (of peer), or, for what it starts itself,
   handing held FD */
#define _GNU_SOURCE
#include "probing.h"
#include "sharing.h"
#include <sys/select.h>
#include <sys/sendfile.h>

static void by_both(void) {
    int fd = open_to('e');
    say("parent: %s", echoed(fd, "before"));
    in_child(talks, fd);
    say("parent: %s", echoed(fd, "after"));
    in_child(talks, fd);
    say("parent: %s", echoed(fd, "at last"));
    close(fd);
}

static void opened_and_left(void) {
    int fd = open_to('e'), ready[2], status;
    pipe(ready);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ready[1]);
        read(ready[0], &byte, 1);
        talks(fd);
        _exit(0);
    }
    close(fd);
    close(ready[1]);
    close(ready[0]);
    waitpid(child, &status, 0);
    say("status %d", status);
}

static void uses_and_exits(int fd) { say("child: %s", result(write(fd, "x", 1))); }
static void closes(int fd) { say("child closes: %s", result(close(fd))); }
static void kills_itself(int fd) {
    write(fd, "x", 1);
    kill(getpid(), SIGKILL);
}

static void last_close_ends(void) {
    char late[4];
    int fd = at_gate();
    in_child(uses_and_exits, fd);
    in_child(closes, fd);
    int opener = open_to('o');
    say("late: %s", result(recv(fd, late, 4, MSG_WAITALL)));
    close(fd);
    char how = '?';
    read(opener, &how, 1);
    say("the peer saw %c", how);
    close(opener);
}

static void reads_and_exits(int fd) {
    char late[4];
    int opener = open_to('o');
    say("late: %s", result(recv(fd, late, 4, MSG_WAITALL)));
    close(fd);
    char how = '?';
    read(opener, &how, 1);
    say("the peer saw %c", how);
}

static void child_is_last(void) {
    int fd = at_gate(), status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        reads_and_exits(fd);
        _exit(0);
    }
    close(fd);
    waitpid(child, &status, 0);
    say("status %d", status);
}

static void killed(void) {
    int fd = open_to('e');
    in_child(kills_itself, fd);
    char byte = 0;
    say("parent reads the dead child's: %s", result(read(fd, &byte, 1)));
    say("parent: %s", echoed(fd, "goes on"));
    close(fd);
}

static void reads_three(int fd) {
    char bytes[3];
    say("child reads %s", result(recv(fd, bytes, 3, MSG_WAITALL)));
    say("child has %.3s", bytes);
}

static void unread(void) {
    char bytes[16] = "";
    int fd = open_to('e'), queued = 0;
    write(fd, "abcdefgh", 8);
    poll_one(fd, POLLIN, 10000);
    while (queued < 8) ioctl(fd, FIONREAD, &queued);
    say("parent peeks %s", result(recv(fd, bytes, 2, MSG_PEEK)));
    say("parent reads %s", result(recv(fd, bytes, 2, 0)));
    in_child(reads_three, fd);
    say("parent reads %s", result(recv(fd, bytes, 3, MSG_WAITALL)));
    say("parent has %.3s", bytes);
    say("nothing more: %s", result(recv(fd, bytes, 16, MSG_DONTWAIT)));
    close(fd);
}

static void duplicates(int fd) {
    int other = dup(fd), third = dup2(fd, 200), fourth = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    say("dup: %s", echoed(other, "one"));
    close(fd);
    say("dup2: %s", echoed(third, "two"));
    close(other);
    say("F_DUPFD: %s, %d", echoed(fourth, "three"), fcntl(fourth, F_GETFD));
}

static void duplicated(void) {
    int fd = open_to('e');
    in_child(duplicates, fd);
    say("parent: %s", echoed(fd, "yet here"));
    close(fd);
}

static void has_a_child(int fd) { in_child(talks, fd); }
static void uses_then_has_a_child(int fd) {
    talks(fd);
    in_child(talks, fd);
}

static void grandchild(void) {
    int fd = open_to('e');
    in_child(has_a_child, fd);
    in_child(uses_then_has_a_child, fd);
    say("parent: %s", echoed(fd, "parent"));
    close(fd);
}

static struct sockaddr_in parents_own, parents_peer;

static void names(int fd) {
    struct sockaddr_in own, other;
    socklen_t len = sizeof own, other_len = sizeof other;
    begin("own %s", result(getsockname(fd, (struct sockaddr *)&own, &len)));
    more(" same %d", !memcmp(&own, &parents_own, sizeof own));
    more(" peer %s", result(getpeername(fd, (struct sockaddr *)&other, &other_len)));
    finish(" same %d len %d %d", !memcmp(&other, &parents_peer, sizeof other), len, other_len);
}

static void remember_names(int fd) {
    socklen_t len = sizeof parents_own;
    getsockname(fd, (struct sockaddr *)&parents_own, &len);
    getpeername(fd, (struct sockaddr *)&parents_peer, &len);
}

static void named(void) {
    int fd = open_to('e');
    remember_names(fd);
    in_child(names, fd);
    names(fd);
    close(fd);
}

static void options(int fd) {
    struct linger linger = {9, 9};
    struct timeval time = {9, 9};
    socklen_t len = sizeof linger, time_len = sizeof time;
    say("nodelay %d keepalive %d idle %d", int_option(fd, IPPROTO_TCP, TCP_NODELAY) != 0,
        int_option(fd, SOL_SOCKET, SO_KEEPALIVE), int_option(fd, IPPROTO_TCP, TCP_KEEPIDLE));
    getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len);
    say("linger %d %d", linger.l_onoff, linger.l_linger);
    getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &time_len);
    say("timeout %ld", time.tv_sec);
    say("type %d domain %d protocol %d listens %d", int_option(fd, SOL_SOCKET, SO_TYPE),
        int_option(fd, SOL_SOCKET, SO_DOMAIN), int_option(fd, SOL_SOCKET, SO_PROTOCOL),
        int_option(fd, SOL_SOCKET, SO_ACCEPTCONN));
    say("error %d inline %d", int_option(fd, SOL_SOCKET, SO_ERROR),
        int_option(fd, SOL_SOCKET, SO_OOBINLINE));
    say("low water %d tos %d user timeout %d", int_option(fd, SOL_SOCKET, SO_RCVLOWAT),
        int_option(fd, IPPROTO_IP, IP_TOS), int_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT));
}

static void kept_options(void) {
    int fd = open_to('e'), on = 1, idle = 77, tos = 0x10, patience = 54321;
    struct linger linger = {1, 3};
    struct timeval time = {5, 0};
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
    in_child(options, fd);
    close(fd);
}

static void sets_nonblocking(int fd) {
    char byte;
    nonblocking(fd);
    say("child: %s", result(read(fd, &byte, 1)));
}
static void clears_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK); }
static void tells_flags(int fd) { say("child: nonblocking %d", !!(fcntl(fd, F_GETFL) & O_NONBLOCK)); }
static void sets_nodelay_off(int fd) {
    int off = 0;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &off, sizeof off);
}

static void shared_flags(void) {
    char byte;
    int fd = open_to('e');
    in_child(sets_nonblocking, fd);
    say("parent: nonblocking %d, %s", !!(fcntl(fd, F_GETFL) & O_NONBLOCK), result(read(fd, &byte, 1)));
    in_child(tells_flags, fd);
    in_child(clears_nonblocking, fd);
    say("parent: nonblocking %d", !!(fcntl(fd, F_GETFL) & O_NONBLOCK));
    say("parent: %s", echoed(fd, "blocking"));
    in_child(sets_nodelay_off, fd);
    say("parent: nodelay %d", int_option(fd, IPPROTO_TCP, TCP_NODELAY) != 0);
    close(fd);
}

static void parents_nonblocking(void) {
    int fd = open_to('e');
    nonblocking(fd);
    in_child(tells_flags, fd);
    close(fd);
}

static void stops_writing(int fd) { say("child: %s", result(shutdown(fd, SHUT_WR))); }
static void stops_reading(int fd) { say("child: %s", result(shutdown(fd, SHUT_RD))); }

static void shut_by_child(void) {
    char bytes[8];
    int fd = at_gate(), opener;
    in_child(stops_writing, fd);
    say("parent writes: %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
    opener = open_to('o');
    say("parent reads: %s", result(recv(fd, bytes, 4, MSG_WAITALL)));
    say("then: %s", result(read(fd, bytes, 4)));
    say("poll: %s", bits(poll_one(fd, POLLIN | POLLOUT | POLLRDHUP, 10000)));
    read(opener, bytes, 1);
    say("the peer saw %c", bytes[0]);
    close(opener);
    close(fd);
}

static void reading_shut_by_child(void) {
    char byte;
    int fd = open_to('e');
    in_child(stops_reading, fd);
    say("parent reads: %s", result(read(fd, &byte, 1)));
    close(fd);
}

static void shut_before(void) {
    int fd = open_to('e');
    say("parent: %s", result(shutdown(fd, SHUT_WR)));
    fflush(stdout);
    int status;
    pid_t child = fork();
    if (child == 0) {
        char byte;
        say("child writes: %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
        say("child reads: %s", result(read(fd, &byte, 1)));
        _exit(0);
    }
    waitpid(child, &status, 0);
    close(fd);
}

static void reads_to_the_end(int fd) {
    char bytes[8];
    say("child reads: %s", result(recv(fd, bytes, 3, MSG_WAITALL)));
    say("child reads: %s", result(read(fd, bytes, 8)));
    say("child polls: %s", bits(poll_one(fd, POLLIN | POLLRDHUP, 10000)));
}

static void peer_closes(void) {
    char byte;
    int fd = open_to('c');
    in_child(reads_to_the_end, fd);
    say("parent reads: %s", result(read(fd, &byte, 1)));
    close(fd);
}

static void peer_has_closed(void) {
    int fd = open_to('h');
    poll_one(fd, POLLRDHUP, 10000);
    in_child(reads_to_the_end, fd);
    close(fd);
}

static void is_reset(int fd) {
    char byte;
    say("child reads: %s", result(read(fd, &byte, 1)));
    say("child reads again: %s", result(read(fd, &byte, 1)));
    say("child writes: %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
}

static void peer_resets(void) {
    char byte;
    int fd = open_to('e'), other = open_to('r');
    in_child(talks, fd);
    poll_one(other, POLLIN, 10000);
    in_child(is_reset, other);
    say("parent reads: %s", result(read(other, &byte, 1)));
    say("the other: %s", echoed(fd, "as before"));
    close(other);
    close(fd);
}

static void waits(int fd) {
    char bytes[4];
    say("poll: %s", bits(poll_one(fd, POLLIN | POLLOUT, 10000)));
    write(fd, "w", 1);
    say("poll: %s", bits(poll_one(fd, POLLIN, 10000)));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    say("select: %s", result(select(fd + 1, &set, NULL, NULL, NULL)));
    int epoll = epoll_create1(0);
    struct epoll_event event = {EPOLLIN | EPOLLET, {.fd = fd}};
    say("add: %s", result(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)));
    say("epoll: %s", bits(wait_one(epoll, 10000)));
    say("again: %s", bits(wait_one(epoll, 0)));
    say("read: %s", result(read(fd, bytes, 4)));
    write(fd, "w", 1);
    say("epoll: %s", bits(wait_one(epoll, 10000)));
    say("change: %s", result(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event)));
    say("remove: %s", result(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL)));
    say("read: %s", result(read(fd, bytes, 4)));
}

static void waited_for(void) {
    int fd = open_to('e');
    in_child(waits, fd);
    waits(fd);
    close(fd);
}

static void moves(int fd) {
    char bytes[16] = "";
    struct iovec out[2] = {{"ab", 2}, {"cd", 2}}, in[2] = {{bytes, 1}, {bytes + 1, 3}};
    say("writev: %s", result(writev(fd, out, 2)));
    poll_one(fd, POLLIN, 10000);
    int queued = 0;
    while (queued < 4) ioctl(fd, FIONREAD, &queued);
    say("queued %d", queued);
    say("peek: %s", result(recv(fd, bytes, 16, MSG_PEEK)));
    say("readv: %s %.4s", result(readv(fd, in, 2)), bytes);
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 2};
    say("sendmsg: %s", result(sendmsg(fd, &message, 0)));
    message.msg_iov = in;
    say("recvmsg: %s %.4s", result(recvmsg(fd, &message, MSG_WAITALL)), bytes);
    FILE *file = tmpfile();
    fputs("a file", file);
    fflush(file);
    off_t from = 2;
    say("sendfile: %s", result(sendfile(fd, fileno(file), &from, 4)));
    say("read: %s", result(recv(fd, bytes, 4, MSG_WAITALL)));
    say("bytes %.4s", bytes);
    say("nothing: %s", result(recv(fd, bytes, 1, MSG_DONTWAIT)));
}

static void moved(void) {
    int fd = open_to('e');
    in_child(moves, fd);
    moves(fd);
    close(fd);
}

static void times_out(int fd) {
    char byte;
    struct timespec began;
    clock_gettime(CLOCK_MONOTONIC, &began);
    say("child: %s", result(read(fd, &byte, 1)));
    say("waited %d", elapsed_ms(began) >= 45);
}

static void timed(void) {
    int fd = open_to('e');
    struct timeval time = {0, 50000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    in_child(times_out, fd);
    close(fd);
}

/* As rsync has it: one process writes, another reads. */
static void in_two_directions(void) {
    enum { MUCH = 600000 };
    int fd = open_to('e'), status, right = 1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        static unsigned char bytes[MUCH];
        for (int i = 0; i < MUCH; i++) bytes[i] = i * 7 + i / 251;
        for (ssize_t at = 0, put; at < MUCH; at += put)
            if ((put = write(fd, bytes + at, MUCH - at)) <= 0) _exit(1);
        _exit(0);
    }
    for (int at = 0; at < MUCH;) {
        unsigned char bytes[4096];
        ssize_t got = read(fd, bytes, sizeof bytes);
        if (got <= 0) break;
        for (int i = 0; i < got; i++, at++) right &= bytes[i] == (unsigned char)(at * 7 + at / 251);
        if (at == MUCH) say("all came");
    }
    waitpid(child, &status, 0);
    say("in order %d, status %d", right, status);
    close(fd);
}

static void accepted(void) {
    char greeting[5];
    int listener, status;
    unsigned short port = listen_at_any(&listener);
    int asking = call_back(port), fd = accept(listener, NULL, NULL);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(listener);
        say("child: %s", result(recv(fd, greeting, 5, MSG_WAITALL)));
        talks(fd);
        _exit(0);
    }
    close(fd);
    waitpid(child, &status, 0);
    int again = call_back(port), second = accept(listener, NULL, NULL);
    say("another: %s", result(recv(second, greeting, 5, MSG_WAITALL)));
    say("parent: %s", echoed(second, "the next"));
    close(second);
    close(again);
    close(asking);
    close(listener);
}

/* Becomes this program anew, with a connection. */
static void becomes(int fd) {
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    execl(own_path, "handing", "held", number, NULL);
    say("cannot: %s", strerrorname_np(errno));
}
static void becomes_by_execv(int fd) {
    char number[16];
    char *arguments[] = {"handing", "held", number, NULL};
    snprintf(number, sizeof number, "%d", fd);
    execv(own_path, arguments);
}
static void uses_and_becomes(int fd) {
    talks(fd);
    becomes_by_execv(fd);
}
static void opens_and_becomes(int fd) {
    (void)fd;
    int own = open_to('e');
    say("own: %s", echoed(own, "mine"));
    becomes_by_execv(own);
}
static void closes_on_exec(int fd) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    becomes_by_execv(fd);
}
static void fails_to_become(int fd) {
    char *arguments[] = {"nothing", NULL};
    say("exec: %s", result(execv("/nonexistent/program", arguments)));
    say("exec: %s", result(execv("/etc/passwd", arguments)));
    talks(fd);
}
static void speaks(int fd) {
    char *arguments[] = {"echo", "said by echo", NULL};
    dup2(fd, 1);
    dup2(fd, 0);
    execv("/bin/echo", arguments);
}

static void heard(int fd, const char *by) {
    char line[16] = "";
    ssize_t got = recv(fd, line, 13, MSG_WAITALL);
    say("%s: %s %.12s", by, result(got), line);
}

static void over_exec(void) {
    int fd = open_to('e');
    in_child(becomes_by_execv, fd);
    in_child(uses_and_becomes, fd);
    in_child(opens_and_becomes, fd);
    in_child(closes_on_exec, fd);
    in_child(fails_to_become, fd);
    in_child(becomes, fd);
    in_child(speaks, fd);
    heard(fd, "echo");
    say("parent: %s", echoed(fd, "still"));
    close(fd);
}

static void spawned(void) {
    int fd = open_to('e'), status;
    char *arguments[] = {"echo", "said by echo", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    say("spawn: %s", result(-posix_spawn(&child, "/bin/echo", &actions, NULL, arguments, environ)));
    waitpid(child, &status, 0);
    heard(fd, "spawned");
    say("spawn: %s", result(-posix_spawnp(&child, "echo", &actions, NULL, arguments, environ)));
    waitpid(child, &status, 0);
    heard(fd, "spawned");
    posix_spawn_file_actions_destroy(&actions);
    say("parent: %s", echoed(fd, "still"));
    close(fd);
}

static void borrowed(void) {
    int fd = open_to('e'), status;
    char *arguments[] = {"echo", "said by echo", NULL};
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    pid_t child = vfork();
    if (child == 0) {
        dup2(fd, 1);
        execv("/bin/echo", arguments);
        _exit(1);
    }
    waitpid(child, &status, 0);
    heard(fd, "vfork");
    say("parent: %s", echoed(fd, "still"));
    child = vfork();
    if (child == 0) {
        dup2(fd, 1);
        execv("/bin/echo", arguments);
        _exit(1);
    }
    waitpid(child, &status, 0);
    heard(fd, "again");
    close(fd);
}

static void takes_and_talks(int over) {
    int fds[8], count = take(over, fds);
    say("child: %d came", count);
    for (int i = 0; i < count; i++) talks(fds[i]);
}

static void passed(void) {
    int fd = open_to('e'), other = open_to('e'), ends[2], status;
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    say("one: %s", result(pass(ends[0], &fd, 1)));
    say("two: %s", result(pass(ends[0], (int[]){fd, other}, 2)));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(fd);
        close(other);
        close(ends[0]);
        takes_and_talks(ends[1]);
        takes_and_talks(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    close(other);
    waitpid(child, &status, 0);
    say("parent: %s", echoed(fd, "still"));
    close(fd);
    close(ends[0]);
}

static void passed_to_itself(void) {
    int fd = open_to('e'), same, ends[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
    remember_names(fd);
    write(fd, "unread", 6);
    poll_one(fd, POLLIN, 10000);
    nonblocking(fd);
    say("pass: %s", result(pass(ends[0], &fd, 1)));
    say("take: %d", take(ends[1], &same));
    char bytes[8] = "";
    say("nonblocking %d", !!(fcntl(same, F_GETFL) & O_NONBLOCK));
    poll_one(same, POLLIN, 10000);
    fcntl(same, F_SETFL, O_RDWR);
    say("parent's nonblocking %d", !!(fcntl(fd, F_GETFL) & O_NONBLOCK));
    say("unread: %s", result(recv(same, bytes, 6, MSG_WAITALL)));
    say("bytes %.6s", bytes);
    names(same);
    say("nodelay %d", int_option(same, IPPROTO_TCP, TCP_NODELAY) != 0);
    close(fd);
    say("goes on: %s", echoed(same, "alone"));
    close(same);
    close(ends[0]);
    close(ends[1]);
}

static void passed_and_lost(void) {
    char how = '?';
    int fd = at_gate(), ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    say("pass: %s", result(pass(ends[0], &fd, 1)));
    close(fd);
    close(ends[1]);
    close(ends[0]);
    int opener = open_to('o');
    read(opener, &how, 1);
    say("the peer was %s", how == 'E' || how == 'R' ? "told" : "not told");
    close(opener);
}

static void passed_after_shutdown(void) {
    char byte;
    int fd = open_to('e'), same, ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    shutdown(fd, SHUT_WR);
    say("pass: %s", result(pass(ends[0], &fd, 1)));
    say("take: %d", take(ends[1], &same));
    say("write: %s", result(send(same, "x", 1, MSG_NOSIGNAL)));
    say("read: %s", result(read(same, &byte, 1)));
    close(same);
    close(fd);
    close(ends[0]);
    close(ends[1]);
}

static void passed_among_several(void) {
    char byte = 'm', room[CMSG_SPACE(sizeof(int))];
    int fd = open_to('e'), same, ends[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
    struct iovec part = {&byte, 1};
    struct mmsghdr several[2] = {{{.msg_iov = &part, .msg_iovlen = 1}, 0}, {{.msg_iov = &part, .msg_iovlen = 1}, 0}};
    several[1].msg_hdr.msg_control = room;
    several[1].msg_hdr.msg_controllen = sizeof room;
    struct cmsghdr *header = CMSG_FIRSTHDR(&several[1].msg_hdr);
    *header = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    say("sendmmsg: %s", result(sendmmsg(ends[0], several, 2, 0)));
    say("first: %d", take(ends[1], &same));
    say("second: %d", take(ends[1], &same));
    say("goes on: %s", echoed(same, "passed"));
    close(same);
    close(fd);
    close(ends[0]);
    close(ends[1]);
}

/* A server that accepts, and one that it passes connections to. */
static void passed_when_accepted(void) {
    int listener, ends[2], status;
    unsigned short port = listen_at_any(&listener);
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(listener);
        for (int i = 0; i < 3; i++) {
            char greeting[5];
            int fd;
            take(ends[1], &fd);
            say("child: %s", result(recv(fd, greeting, 5, MSG_WAITALL)));
            talks(fd);
            close(fd);
        }
        _exit(0);
    }
    int asking[3];
    for (int i = 0; i < 3; i++) {
        asking[i] = call_back(port);
        int fd = accept(listener, NULL, NULL);
        pass(ends[0], &fd, 1);
        close(fd);
    }
    waitpid(child, &status, 0);
    say("status %d", status);
    for (int i = 0; i < 3; i++) close(asking[i]);
    close(listener);
    close(ends[0]);
    close(ends[1]);
}

static void takes_a_listener(int over) {
    char greeting[5];
    int listener;
    say("child: %d came", take(over, &listener));
    say("listens %d", int_option(listener, SOL_SOCKET, SO_ACCEPTCONN));
    int fd = accept(listener, NULL, NULL);
    say("child: %s", result(recv(fd, greeting, 5, MSG_WAITALL)));
    talks(fd);
}

static void passed_listener(void) {
    int listener, ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    unsigned short port = listen_at_any(&listener);
    say("pass: %s", result(pass(ends[0], &listener, 1)));
    close(listener);
    int asking = call_back(port);
    in_child(takes_a_listener, ends[1]);
    close(asking);
    close(ends[0]);
    close(ends[1]);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "held")) {
        check = "held";
        say("%s", echoed(atoi(argv[2]), "by another program"));
        return 0;
    }
    ssize_t len = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    if (len < 0) return 2;
    const struct check checks[] = {
        {"by both", by_both}, {"opened and left", opened_and_left}, {"last close", last_close_ends},
        {"child is last", child_is_last}, {"killed", killed}, {"unread", unread},
        {"duplicated", duplicated}, {"grandchild", grandchild}, {"named", named},
        {"options", kept_options}, {"flags", shared_flags},
        {"parent's flags", parents_nonblocking}, {"shut by child", shut_by_child},
        {"reading shut", reading_shut_by_child}, {"shut before", shut_before},
        {"peer closes", peer_closes}, {"peer has closed", peer_has_closed}, {"peer resets", peer_resets},
        {"waited for", waited_for}, {"moved", moved}, {"timed", timed},
        {"two directions", in_two_directions}, {"accepted", accepted}, {"exec", over_exec},
        {"spawned", spawned}, {"borrowed", borrowed}, {"passed", passed},
        {"to itself", passed_to_itself}, {"lost", passed_and_lost},
        {"after shutdown", passed_after_shutdown}, {"among several", passed_among_several},
        {"accepted and passed", passed_when_accepted}, {"listener", passed_listener},
    };
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}

/* One connection or listener and several processes that have it: what one does, the others see. Prints the same
   on kernel sockets and under the library. Usage: holders PEER-ADDRESS PORT (of peer) */
#define _GNU_SOURCE
#include "probing.h"
#include "sharing.h"
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>

/* Lets one process wait for another. */
struct step {
    int ends[2];
};

static struct step new_step(void) {
    struct step step;
    pipe(step.ends);
    return step;
}
static void tell(struct step step) { write(step.ends[1], "t", 1); }
static void hear(struct step step) {
    char byte;
    read(step.ends[0], &byte, 1);
}
static void end_step(struct step step) {
    close(step.ends[0]);
    close(step.ends[1]);
}

/* Close: the last one ends the connection. */

static void closes(int fd) { close(fd); }

/* What the peer says once its gate is open. A connection with unread bytes ends by a reset. */
static void reads_late(int fd) {
    char bytes[4];
    if (recv(fd, bytes, 4, MSG_WAITALL) != 4) say("not all came");
}
static void nothing(int fd) { (void)fd; }

static void three_close(void) {
    int fd = at_gate();
    struct step step = new_step();
    fflush(stdout);
    pid_t one = fork();
    if (one == 0) {
        hear(step);
        reads_late(fd);
        close(fd);
        _exit(0);
    }
    pid_t other = child_of(closes, fd);
    await(other);
    close(fd);
    int opener = open_to('o');
    tell(step);
    await(one);
    says_end(opener);
    end_step(step);
}

static void used_and_closed(int fd) {
    write(fd, "x", 1);
    close(fd);
}

static void last_resets(void) {
    struct linger hard = {1, 0};
    int fd = at_gate();
    in_child(used_and_closed, fd);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    int opener = open_to('o');
    reads_late(fd);
    close(fd);
    says_end(opener);
}

static void sets_linger_and_closes(int fd) {
    struct linger hard = {1, 0};
    say("linger: %s", result(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard)));
    close(fd);
}

static void one_lingers(void) {
    int fd = open_to('e');
    in_child(sets_linger_and_closes, fd);
    say("parent: %s", echoed(fd, "goes on"));
    close(fd);
    fd = at_gate();
    in_child(sets_linger_and_closes, fd);
    int opener = open_to('o');
    reads_late(fd);
    close(fd);
    says_end(opener);
}

static void unread_at_last_close(void) {
    int fd = at_gate(), opener;
    in_child(used_and_closed, fd);
    opener = open_to('o');
    until_queued(fd, 4);
    close(fd);
    says_end(opener);
}

static void is_killed(int fd) {
    write(fd, "x", 1);
    reads_late(fd);
    kill(getpid(), SIGKILL);
}

static void killed_last(void) {
    int fd = at_gate();
    struct step step = new_step();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        hear(step);
        is_killed(fd);
    }
    close(fd);
    int opener = open_to('o');
    tell(step);
    await(child);
    says_end(opener);
    end_step(step);
}

/* Shutdown and ends. */

static void stops_reading(int fd) { say("child: %s", result(shutdown(fd, SHUT_RD))); }
static void stops_writing(int fd) { say("child: %s", result(shutdown(fd, SHUT_WR))); }
static void stops_both(int fd) { say("child: %s", result(shutdown(fd, SHUT_RDWR))); }

static void seen(int fd) {
    char byte;
    say("polls %s", bits(poll_one(fd, POLLIN | POLLOUT | POLLRDHUP, 1000)));
    begin("reads %s", result(recv(fd, &byte, 1, MSG_DONTWAIT)));
    finish(" writes %s", result(send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT)));
}

static void shut_by_child(void) {
    void (*stops[])(int) = {stops_reading, stops_writing, stops_both};
    for (int i = 0; i < 3; i++) {
        int fd = at_gate();
        in_child(stops[i], fd);
        seen(fd);
        leave_gate(fd);
    }
}

static void reading_shut_before(void) {
    int fd = at_gate();
    shutdown(fd, SHUT_RD);
    seen(fd);
    in_child(seen, fd);
    seen(fd);
    leave_gate(fd);
}

static void both_shut_before(void) {
    int fd = at_gate();
    shutdown(fd, SHUT_RDWR);
    seen(fd);
    in_child(seen, fd);
    leave_gate(fd);
}

static void unread_and_shut_before(void) {
    int fd = open_to('e');
    write(fd, "abcd", 4);
    until_queued(fd, 4);
    shutdown(fd, SHUT_RD);
    in_child(use_unread, fd);
    after_unread(fd);
    close(fd);
}

/* A reader waits; another holder ends its waiting. */
static void reader_is_ended(void) {
    int fd = at_gate();
    struct step step = new_step();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        int own = getpid();
        write(step.ends[1], &own, sizeof own);
        say("child reads %s", result(read(fd, &byte, 1)));
        _exit(0);
    }
    int id = 0;
    char path[64], line[256], *state;
    read(step.ends[0], &id, sizeof id);
    snprintf(path, sizeof path, "/proc/%d/stat", id);
    for (int turn = 0; turn < 2000; turn++) {
        FILE *file = fopen(path, "r");
        if (file && fgets(line, sizeof line, file) && (state = strrchr(line, ')')) && state[2] == 'S') turn = 2000;
        if (file) fclose(file);
        usleep(500);
    }
    int shut = shutdown(fd, SHUT_RD);
    await(child);
    say("parent: %d", shut);
    leave_gate(fd);
    end_step(step);
}

static void sees_end(int fd) {
    int set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN | EPOLLRDHUP, {.u64 = 1}};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    while (!(poll_one(fd, POLLRDHUP, 1000) & POLLRDHUP)) {}
    say("set: %s", bits(wait_one(set, 10000)));
    close(set);
}

static void end_seen_by_all(void) {
    int fd = open_to('h');
    in_child(sees_end, fd);
    sees_end(fd);
    in_child(use_ended, fd);
    after_ended(fd);
    close(fd);
}

static void tells_error(int fd) { say("child: %s", strerrorname_np(int_option(fd, SOL_SOCKET, SO_ERROR))); }

static void error_told_once(void) {
    int fd = make_reset();
    in_child(tells_error, fd);
    say("parent: %d", int_option(fd, SOL_SOCKET, SO_ERROR));
    close(fd);
}

static void writes_to_death(int fd) {
    signal(SIGPIPE, SIG_DFL);
    write(fd, "x", 1);
    say("not reached");
}

static void pipe_signal(void) {
    int fd = open_to('e');
    shutdown(fd, SHUT_WR);
    in_child(writes_to_death, fd);
    close(fd);
}

/* Accept. */

static void accepts_one(int listener) {
    char greeting[8];
    int fd = accept(listener, NULL, NULL);
    _exit(recv(fd, greeting, 5, MSG_WAITALL) == 5 && !strcmp(echoed(fd, "served"), "served"));
}

static void accepted_by_children(void) {
    int listener, asking[3], served = 0, status;
    pid_t children[3];
    unsigned short port = listen_at_any(&listener);
    for (int i = 0; i < 3; i++) children[i] = child_of(accepts_one, listener);
    for (int i = 0; i < 3; i++) asking[i] = call_back(port);
    for (int i = 0; i < 3; i++) {
        waitpid(children[i], &status, 0);
        served += WEXITSTATUS(status);
    }
    say("served %d", served);
    for (int i = 0; i < 3; i++) close(asking[i]);
    close(listener);
}

static void tries_accept(int listener) { _exit(accept(listener, NULL, NULL) >= 0); }

static void accepted_once(void) {
    int listener, status, taken;
    unsigned short port = listen_at_any(&listener), asking = call_back(port);
    poll_one(listener, POLLIN, 10000);
    nonblocking(listener);
    pid_t one = child_of(tries_accept, listener), other = child_of(tries_accept, listener);
    waitpid(one, &status, 0);
    taken = WEXITSTATUS(status);
    waitpid(other, &status, 0);
    say("taken %d, then %s", taken + WEXITSTATUS(status), result(accept(listener, NULL, NULL)));
    close(asking);
    close(listener);
}

static void waits_and_serves(int listener) {
    begin("polls %s", bits(poll_one(listener, POLLIN, 10000)));
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    finish(" accepts %d %d", fcntl(fd, F_GETFD), !!(fcntl(fd, F_GETFL) & O_NONBLOCK));
    poll_one(fd, POLLIN, 10000);
    says_next("hears", fd, 5);
}

static void listener_outlives_parents(void) {
    int listener;
    struct step step = new_step();
    unsigned short port = listen_at_any(&listener);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        hear(step);
        waits_and_serves(listener);
        _exit(0);
    }
    close(listener);
    int asking = call_back(port);
    tell(step);
    await(child);
    close(asking);
    end_step(step);
}

static void listener_outlives_children(void) {
    int listener;
    unsigned short port = listen_at_any(&listener);
    in_child(closes, listener);
    in_child(nothing, listener);
    int asking = call_back(port);
    waits_and_serves(listener);
    close(asking);
    close(listener);
}

static void listener_shut_by_child(void) {
    int listener;
    listen_at_any(&listener);
    in_child(stops_reading, listener);
    nonblocking(listener);
    begin("listens %d", int_option(listener, SOL_SOCKET, SO_ACCEPTCONN));
    finish(" accepts %s", result(accept(listener, NULL, NULL)));
    close(listener);
}

/* Waiting. */

static void polls_only(int fd) { _exit(poll_one(fd, POLLIN, 10000) == POLLIN); }
static void waits_only(int fd) {
    int set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u64 = 1}};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    _exit(wait_one(set, 10000) == EPOLLIN);
}
static void selects_only(int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval time = {10, 0};
    _exit(select(fd + 1, &set, NULL, NULL, &time) == 1 && FD_ISSET(fd, &set));
}
static void reads_only(int fd) {
    char byte;
    _exit(read(fd, &byte, 1) == 1);
}

static void waited_by(void (*first)(int), void (*second)(int)) {
    int fd = open_to('e'), status, told = 0;
    pid_t one = child_of(first, fd), other = child_of(second, fd);
    write(fd, first == reads_only ? "xy" : "x", first == reads_only ? 2 : 1);
    waitpid(one, &status, 0);
    told += WEXITSTATUS(status);
    waitpid(other, &status, 0);
    say("told %d", told + WEXITSTATUS(status));
    close(fd);
}

static void polled_by_two(void) { waited_by(polls_only, polls_only); }
static void selected_by_two(void) { waited_by(selects_only, polls_only); }
static void awaited_by_two_sets(void) { waited_by(waits_only, waits_only); }
static void read_by_two(void) { waited_by(reads_only, reads_only); }
static void waits_at_set(int set) { _exit(wait_one(set, 10000) == EPOLLIN); }

static void awaited_by_one_set(void) {
    int set = make_set(), status;
    pid_t one = child_of(waits_at_set, set), other = child_of(waits_at_set, set);
    waitpid(one, &status, 0);
    int told = WEXITSTATUS(status);
    waitpid(other, &status, 0);
    say("told %d", told + WEXITSTATUS(status));
    in_child(use_set, set);
    use_set(set);
    close(set);
    close(beside);
}

/* Set by one before the other uses the connection. */
static void edges_of_children(void) {
    int fd = open_to('e'), set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN | EPOLLET, {.u64 = 1}};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    in_child(talks, fd);
    say("none %s", bits(wait_one(set, 0)));
    write(fd, "x", 1);
    say("edge %s", bits(wait_one(set, 10000)));
    say("again %s", bits(wait_one(set, 0)));
    close(set);
    close(fd);
}

/* Reading, writing, counting. */

static void peeks(int fd) {
    char bytes[8] = "";
    begin("child peeks %s", result(recv(fd, bytes, 3, MSG_PEEK)));
    finish(" %s", bytes);
}

static void peeked_by_child(void) {
    int fd = make_unread();
    in_child(peeks, fd);
    in_child(peeks, fd);
    says_next("parent", fd, 6);
    close(fd);
}

static void waits_for_all(int fd) { says_next("child", fd, 5); }
static void trickled_to_child(void) {
    int fd = open_to('t');
    in_child(waits_for_all, fd);
    close(fd);
}

static void throws_away(int fd) { say("child: %s", result(recv(fd, NULL, 4, MSG_TRUNC | MSG_DONTWAIT))); }
static void thrown_away_by_child(void) {
    int fd = make_unread();
    in_child(throws_away, fd);
    says_next("parent", fd, 2);
    close(fd);
}

static void counts(int fd) {
    int queued = -1, sent = -1;
    until_queued(fd, 6);
    begin("FIONREAD %s", result(ioctl(fd, FIONREAD, &queued)));
    more(" %d", queued);
    more(" TIOCOUTQ %s", result(ioctl(fd, TIOCOUTQ, &sent)));
    finish(" %d", sent);
}
static void counted(void) {
    int fd = make_unread();
    in_child(counts, fd);
    counts(fd);
    close(fd);
}

static void reads_nothing(int fd) {
    char byte;
    begin("read %s", result(read(fd, &byte, 0)));
    more(" send %s", result(send(fd, &byte, 0, 0)));
    finish(" read %s", result(recv(fd, &byte, 1, MSG_DONTWAIT)));
}
static void empty_transfers(void) {
    int fd = open_to('e');
    in_child(reads_nothing, fd);
    reads_nothing(fd);
    close(fd);
}

static void times_out_writing(int fd) {
    static char much[1 << 16];
    struct timespec began;
    ssize_t put;
    do {
        clock_gettime(CLOCK_MONOTONIC, &began);
        put = write(fd, much, sizeof much);
    } while (put > 0);
    begin("write %s", result(put));
    finish(" waited %d", elapsed_ms(began) >= 15);
}

static void fills(int fd) {
    static char much[1 << 16];
    nonblocking(fd);
    ssize_t put;
    do while ((put = write(fd, much, sizeof much)) > 0) {}
    while (poll_one(fd, POLLOUT, 30) & POLLOUT);
    say("write %s", result(put));
}

static void writing_timed(void) {
    struct timeval time = {0, 20000};
    int fd = at_gate();
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    in_child(times_out_writing, fd);
    leave_gate(fd);
}

static void filled_by_child(void) {
    int fd = at_gate();
    in_child(fills, fd);
    fflush(stdout);
    char how;
    int opener = open_to('o');
    say("room %s", bits(poll_one(fd, POLLOUT, 10000)));
    close(fd);
    read(opener, &how, 1);
    close(opener);
}

static void times_out_reading(int fd) {
    char byte;
    struct timespec began;
    struct timeval time = {0, 20000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    clock_gettime(CLOCK_MONOTONIC, &began);
    begin("recv %s", result(recv(fd, &byte, 1, 0)));
    finish(" waited %d", elapsed_ms(began) >= 15);
}
static void timed_by_child(void) {
    int fd = open_to('e');
    in_child(times_out_reading, fd);
    struct timeval time = {9, 9};
    socklen_t len = sizeof time;
    getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &len);
    say("parent %ld %ld", time.tv_sec, (long)time.tv_usec);
    times_out_reading(fd);
    close(fd);
}

/* What files can do, and sockets cannot. */
static void as_file(int fd) {
    char byte, path[64], target[64] = "";
    struct stat told = {0};
    begin("seek %s", result(lseek(fd, 0, SEEK_SET)));
    more(" pread %s", result(pread(fd, &byte, 1, 0)));
    more(" pwrite %s", result(pwrite(fd, "x", 1, 0)));
    more(" truncate %s", result(ftruncate(fd, 0)));
    more(" sync %s", result(fsync(fd)));
    more(" tty %d", isatty(fd));
    more(" map %s", mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? strerrorname_np(errno) : "0");
    fstat(fd, &told);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    readlink(path, target, sizeof target - 1);
    finish(" socket %d %.7s open %s", S_ISSOCK(told.st_mode), target, result(open(path, O_RDWR)));
}
static void taken_for_file(void) {
    int fd = open_to('e');
    as_file(fd);
    in_child(as_file, fd);
    say("parent: %s", echoed(fd, "unharmed"));
    close(fd);
}

static void splices(int fd) {
    int ends[2];
    char bytes[8] = "";
    pipe(ends);
    write(ends[1], "abcd", 4);
    begin("out %s", result(splice(ends[0], NULL, fd, NULL, 4, 0)));
    until_queued(fd, 4);
    more(" in %s", result(splice(fd, NULL, ends[1], NULL, 4, 0)));
    finish(" %s %.4s", result(read(ends[0], bytes, 4)), bytes);
    close(ends[0]);
    close(ends[1]);
}
static void spliced(void) {
    int fd = open_to('e');
    in_child(splices, fd);
    splices(fd);
    close(fd);
}

static void tells_state(int fd) {
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    begin("state %s", result(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len)));
    finish(" %d", info.tcpi_state);
}
static void stated(void) {
    int fd = open_to('e');
    in_child(tells_state, fd);
    in_child(talks, fd);
    tells_state(fd);
    close(fd);
}

/* Calls by their numbers on what a child has. */
static void talks_by_number(int fd) {
    char bytes[8] = "";
    int copy = syscall(SYS_dup, fd);
    begin("write %s", result(syscall(SYS_write, copy, "abc", 3)));
    more(" read %s", result(syscall(SYS_recvfrom, fd, bytes, 3, MSG_WAITALL, NULL, NULL)));
    more(" %s flags %#lx", bytes, syscall(SYS_fcntl, fd, F_GETFL));
    finish(" close %s", result(syscall(SYS_close, copy)));
}
static void talked_by_number(void) {
    int fd = open_to('e');
    in_child(talks_by_number, fd);
    talks_by_number(fd);
    close(fd);
}

/* Urgent data. */

static void hears_urgently(int fd) {
    char byte = 0;
    begin("polls %s", bits(poll_one(fd, POLLPRI, 10000)));
    more(" oob %s", result(recv(fd, &byte, 1, MSG_OOB)));
    finish(" %c", byte);
}
static void reads_to_mark(int fd) {
    char bytes[8] = "";
    int at_mark = -1;
    begin("at mark %s", result(ioctl(fd, SIOCATMARK, &at_mark)));
    more(" %d", at_mark);
    more(" reads %s", result(recv(fd, bytes, 8, 0)));
    ioctl(fd, SIOCATMARK, &at_mark);
    finish(" %s at mark %d", bytes, at_mark);
}
static void answers_urgently(int fd) {
    char back[8] = "";
    begin("oob %s", result(send(fd, "?", 1, MSG_OOB)));
    more(" back %s", result(recv(fd, back, 4, MSG_WAITALL)));
    finish(" %s", back);
}
static void talks_urgently(int fd) {
    hears_urgently(fd);
    reads_to_mark(fd);
    answers_urgently(fd);
}

static void urgent_in_child(void) {
    int fd = open_to('u');
    in_child(talks_urgently, fd);
    close(fd);
}
static void urgent_by_turns(void) {
    int fd = open_to('u');
    hears_urgently(fd);
    in_child(reads_to_mark, fd);
    answers_urgently(fd);
    close(fd);
}
static void urgent_answer_of_child(void) {
    int fd = open_to('u');
    hears_urgently(fd);
    reads_to_mark(fd);
    in_child(answers_urgently, fd);
    close(fd);
}
static void urgent_is_inline(void) {
    int fd = open_to('u'), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    in_child(nothing, fd);
    in_child(reads_to_mark, fd);
    says_next("inline", fd, 1);
    in_child(answers_urgently, fd);
    close(fd);
}
static void selects_urgent(int fd) {
    fd_set set;
    struct timeval time = {10, 0};
    FD_ZERO(&set);
    FD_SET(fd, &set);
    say("select %s", result(select(fd + 1, NULL, NULL, &set, &time)));
}
static void urgent_selected(void) {
    int fd = open_to('u');
    in_child(selects_urgent, fd);
    talks_urgently(fd);
    close(fd);
}

/* The owner of a socket, as of a file. */
static int first_owner;
static void tells_owner(int fd) { say("owner is the parent %d", fcntl(fd, F_GETOWN) == first_owner); }
static void owned(void) {
    int fd = open_to('e');
    first_owner = getpid();
    fcntl(fd, F_SETOWN, first_owner);
    tells_owner(fd);
    in_child(tells_owner, fd);
    in_child(talks, fd);
    tells_owner(fd);
    close(fd);
}

/* Options: one sets, the other is told. */
static const struct {
    const char *name;
    int level, option, first, second;
} options[] = {
    {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1, 0},
    {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, 1, 0},
    {"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 3, 5},
    {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 5, 2},
    {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 50000, 30000},
    {"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 50000, 30000},
    {"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST, 1, 0},
    {"SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 1, 0},
    {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 1, 1},
    {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 0, 1},
    {"TCP_CORK", IPPROTO_TCP, TCP_CORK, 1, 0},
    {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 77, 88},
    {"TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL, 11, 22},
    {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT, 4, 5},
    {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 54321, 12345},
    {"TCP_LINGER2", IPPROTO_TCP, TCP_LINGER2, 9, 8},
    {"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT, 3, 4},
    {"TCP_NOTSENT_LOWAT", IPPROTO_TCP, TCP_NOTSENT_LOWAT, 20000, 30000},
    {"IP_TOS", IPPROTO_IP, IP_TOS, 0x10, 0x08},
    {"IP_TTL", IPPROTO_IP, IP_TTL, 33, 44},
};

static int present;
static void tells_option(int fd) {
    say("told %d", int_option(fd, options[present].level, options[present].option));
}
static void sets_option(int fd) {
    tells_option(fd);
    int value = options[present].second;
    say("set %s", result(setsockopt(fd, options[present].level, options[present].option, &value, sizeof value)));
}

static void each_option(void) {
    static char name[64];
    for (present = 0; present < (int)(sizeof options / sizeof *options); present++) {
        snprintf(name, sizeof name, "option %s", options[present].name);
        check = name;
        int fd = open_to('e'), value = options[present].first;
        setsockopt(fd, options[present].level, options[present].option, &value, sizeof value);
        in_child(sets_option, fd);
        tells_option(fd);
        close(fd);
    }
}

int main(int argc, char **argv) {
    const struct check checks[] = {
        {"three close", three_close}, {"last resets", last_resets}, {"one lingers", one_lingers},
        {"unread at last close", unread_at_last_close}, {"killed last", killed_last},
        {"shut by child", shut_by_child}, {"reading shut before", reading_shut_before},
        {"both shut before", both_shut_before}, {"unread and shut", unread_and_shut_before},
        {"reader is ended", reader_is_ended}, {"end seen by all", end_seen_by_all},
        {"error told once", error_told_once}, {"pipe signal", pipe_signal},
        {"accepted by children", accepted_by_children}, {"accepted once", accepted_once},
        {"outlives parent's", listener_outlives_parents}, {"outlives children's", listener_outlives_children},
        {"listener shut", listener_shut_by_child}, {"polled by two", polled_by_two},
        {"selected by two", selected_by_two}, {"two sets", awaited_by_two_sets}, {"read by two", read_by_two},
        {"one set", awaited_by_one_set}, {"edges", edges_of_children}, {"peeked", peeked_by_child},
        {"trickled", trickled_to_child}, {"thrown away", thrown_away_by_child}, {"counted", counted},
        {"empty transfers", empty_transfers}, {"writing timed", writing_timed}, {"filled", filled_by_child},
        {"timed by child", timed_by_child}, {"taken for a file", taken_for_file}, {"spliced", spliced},
        {"state", stated}, {"by number", talked_by_number}, {"urgent in child", urgent_in_child}, {"urgent by turns", urgent_by_turns},
        {"urgent answer", urgent_answer_of_child}, {"urgent inline", urgent_is_inline},
        {"urgent selected", urgent_selected}, {"owned", owned},
    };
    int status = run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
    if (status == 0) each_option();
    return status;
}

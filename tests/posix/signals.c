/* SIGURG and SIGIO as the kernel sends them: to whom, about what, and when not. Prints the same on kernel
   sockets and under the library. Usage: signals PEER-ADDRESS PORT (of the program peer) */
#define _GNU_SOURCE
#include "probing.h"
#include <sys/syscall.h>
#include <sys/wait.h>

#define TOLD (SIGRTMIN + 3)

/* What comes within a while, or nothing where nothing is to come. */
static int next(siginfo_t *info, int ms) {
    sigset_t all;
    struct timespec most = {ms / 1000, ms % 1000 * 1000000};
    sigemptyset(&all);
    sigaddset(&all, SIGIO);
    sigaddset(&all, SIGURG);
    sigaddset(&all, TOLD);
    return sigtimedwait(&all, info, &most);
}

static const char *name(int signal) {
    return signal == SIGIO ? "SIGIO" : signal == SIGURG ? "SIGURG" : signal == TOLD ? "told" : "none";
}

static void expect(const char *what) {
    siginfo_t info = {0};
    say("%s: %s", what, name(next(&info, 10000)));
}

static void expect_none(const char *what) {
    siginfo_t info = {0};
    say("%s: %s", what, name(next(&info, 100)));
}

/* A signal with its descriptor and what is asked for of its band; returns its reason. */
static int expect_band(const char *what, int fd, int among) {
    siginfo_t info = {0};
    int signal = next(&info, 10000);
    say("%s: %s fd %d band %s", what, name(signal), signal > 0 && info.si_fd == fd,
        bits(info.si_band & among));
    return info.si_code;
}

/* The same to a process, which is told the reason. */
static void expect_about(const char *what, int fd, int among) {
    say("because of %d", expect_band(what, fd, among));
}

static void forget(void) {
    siginfo_t info;
    while (next(&info, 0) > 0) {}
}

static int asynchronous(int fd, int on) {
    int flags = fcntl(fd, F_GETFL);
    return fcntl(fd, F_SETFL, on ? flags | O_ASYNC : flags & ~O_ASYNC);
}

static void drain(int fd) {
    char buffer[4096];
    while (recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) > 0) {}
}

static void owned(int fd, const char *what, int done) {
    struct f_owner_ex owner = {-1, -1};
    begin("%s: %s", what, result(done));
    int own = fcntl(fd, F_GETOWN), told = -1;
    fcntl(fd, F_GETOWN_EX, &owner);
    more(" owner %s kind %d %s", own == getpid() ? "this" : own == -getpgrp() ? "group" : result(own),
         owner.type, owner.pid == getpid() ? "this" : owner.pid == getpgrp() ? "group" : "other");
    ioctl(fd, SIOCGPGRP, &told);
    more(" told %d", told == own);
    ioctl(fd, FIOGETOWN, &told);
    finish(" %d signal %d async %d", told == own, fcntl(fd, F_GETSIG), !!(fcntl(fd, F_GETFL) & O_ASYNC));
}

static void owners(void) {
    int fd = open_to('e'), group = -getpgrp(), process = getpid(), on = 1;
    owned(fd, "nobody", 0);
    owned(fd, "process", fcntl(fd, F_SETOWN, getpid()));
    owned(fd, "group", fcntl(fd, F_SETOWN, -getpgrp()));
    struct f_owner_ex owner = {F_OWNER_TID, getpid()};
    owned(fd, "thread", fcntl(fd, F_SETOWN_EX, &owner));
    owner = (struct f_owner_ex){7, getpid()};
    owned(fd, "no kind", fcntl(fd, F_SETOWN_EX, &owner));
    owned(fd, "nobody there", fcntl(fd, F_SETOWN, 4194300));
    owned(fd, "no such group", fcntl(fd, F_SETOWN, -4194300));
    owned(fd, "least", fcntl(fd, F_SETOWN, 1 << 31));
    owned(fd, "SIOCSPGRP", ioctl(fd, SIOCSPGRP, &group));
    owned(fd, "FIOSETOWN", ioctl(fd, FIOSETOWN, &process));
    owned(fd, "F_SETSIG", fcntl(fd, F_SETSIG, TOLD));
    owned(fd, "no signal", fcntl(fd, F_SETSIG, 65));
    owned(fd, "less than none", fcntl(fd, F_SETSIG, -1));
    owned(fd, "FIOASYNC", ioctl(fd, FIOASYNC, &on));
    owned(fd, "F_SETFL", asynchronous(fd, 0));
    owned(fd, "nobody again", fcntl(fd, F_SETOWN, 0));
    close(fd);
}

static void input(void) {
    int fd = open_to('e');
    fcntl(fd, F_SETOWN, getpid());
    write(fd, "a", 1);
    expect_none("without O_ASYNC");
    asynchronous(fd, 1);
    expect_none("what is there already");
    drain(fd);
    write(fd, "b", 1);
    expect("data");
    write(fd, "c", 1);
    expect("more on top of it");
    drain(fd);
    asynchronous(fd, 0);
    write(fd, "d", 1);
    expect_none("no longer");
    close(fd);
}

static void about(void) {
    int fd = open_to('h'), second = dup(fd);
    fcntl(fd, F_SETOWN, getpid());
    fcntl(fd, F_SETSIG, TOLD);
    close(fd);
    close(second);
    fd = open_to('e');
    fcntl(fd, F_SETOWN, getpid());
    fcntl(fd, F_SETSIG, TOLD);
    asynchronous(fd, 1);
    write(fd, "a", 1);
    expect_about("data", fd, POLLIN | POLLOUT | POLLPRI);
    drain(fd);
    struct f_owner_ex owner = {F_OWNER_TID, syscall(SYS_gettid)};
    fcntl(fd, F_SETOWN_EX, &owner);
    write(fd, "b", 1);
    expect_band("data for the thread", fd, POLLIN | POLLOUT | POLLPRI);
    drain(fd);
    shutdown(fd, SHUT_WR);
    expect_band("the end", fd, POLLHUP);
    close(fd);
}

static void urgent(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    fcntl(fd, F_SETOWN, getpid());
    connect(fd, (struct sockaddr *)&peer, sizeof peer);
    forget();
    write(fd, "u", 1);
    expect("urgent");
    char byte = 0;
    while (recv(fd, &byte, 1, MSG_OOB) != 1) usleep(1000);
    say("byte %c", byte);
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    fcntl(fd, F_SETOWN, getpid());
    connect(fd, (struct sockaddr *)&peer, sizeof peer);
    asynchronous(fd, 1);
    forget();
    write(fd, "u", 1);
    int told[2] = {0};
    siginfo_t info;
    for (int i = 0; i < 2; i++) {
        int signal = next(&info, 10000);
        told[0] |= signal == SIGURG;
        told[1] |= signal == SIGIO;
    }
    say("urgent %d and news %d", told[0], told[1]);
    close(fd);
}

static void accepted(void) {
    int listener;
    unsigned short port = listen_at_any(&listener);
    int asking = call_back(port);
    int fd = accept(listener, NULL, NULL);
    char greeting[5];
    recv(fd, greeting, 5, MSG_WAITALL);
    say("inherits %s %d", result(fcntl(fd, F_GETOWN)), !!(fcntl(fd, F_GETFL) & O_ASYNC));
    fcntl(fd, F_SETOWN, getpid());
    asynchronous(fd, 1);
    for (int turn = 0; turn < 20; turn++) {
        write(fd, "k", 1);
        siginfo_t info;
        if (next(&info, 10000) != SIGIO) say("nothing at %d", turn);
        drain(fd);
        forget();
    }
    say("told");
    close(asking);
    close(fd);
    close(listener);
}

static void waiting(void) {
    int fd = open_to('t');
    char byte;
    fcntl(fd, F_SETOWN, getpid());
    asynchronous(fd, 1);
    forget();
    for (int i = 0; i < 5; i++) recv(fd, &byte, 1, 0);
    expect_none("by recv");
    close(fd);
}

static void listening(void) {
    int listener;
    unsigned short port = listen_at_any(&listener);
    fcntl(listener, F_SETOWN, getpid());
    asynchronous(listener, 1);
    forget();
    for (int turn = 0; turn < 3; turn++) {
        int asking = call_back(port);
        expect("a connection");
        int fd = accept(listener, NULL, NULL);
        close(fd);
        close(asking);
    }
    fcntl(listener, F_SETSIG, TOLD);
    forget();
    int asking = call_back(port);
    expect_about("a connection", listener, POLLIN);
    close(asking);
    close(listener);
}

static void connecting(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    nonblocking(fd);
    fcntl(fd, F_SETOWN, getpid());
    fcntl(fd, F_SETSIG, TOLD);
    asynchronous(fd, 1);
    forget();
    connect(fd, (struct sockaddr *)&peer, sizeof peer);
    expect_about("connected", fd, POLLOUT | POLLIN);
    struct sockaddr_in nowhere = peer;
    nowhere.sin_port = htons(9);
    int refused = socket(AF_INET, SOCK_STREAM, 0);
    nonblocking(refused);
    fcntl(refused, F_SETOWN, getpid());
    fcntl(refused, F_SETSIG, TOLD);
    asynchronous(refused, 1);
    forget();
    connect(refused, (struct sockaddr *)&nowhere, sizeof nowhere);
    expect_about("refused", refused, POLLERR | POLLIN);
    close(fd);
    close(refused);
}

static volatile sig_atomic_t handled;
static int echoing;

/* A program that does everything in its handler. */
static void handle(int signal) {
    char byte;
    int before = errno;
    struct pollfd asked = {echoing, POLLIN, 0};
    (void)signal;
    while (poll(&asked, 1, handled % 8 == 7) == 1 && recv(echoing, &byte, 1, MSG_DONTWAIT) == 1) handled++;
    errno = before;
}

static void in_handler(void) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigset_t io;
    echoing = open_to('e');
    sigaction(SIGIO, &action, NULL);
    sigemptyset(&io);
    sigaddset(&io, SIGIO);
    fcntl(echoing, F_SETOWN, getpid());
    asynchronous(echoing, 1);
    sigprocmask(SIG_UNBLOCK, &io, NULL);
    int other = open_to('e');
    for (int turn = 0; turn < 200; turn++) {
        char byte;
        write(echoing, "x", 1);
        /* Comes and goes in calls of its own meanwhile. */
        write(other, "y", 1);
        while (recv(other, &byte, 1, 0) != 1) {}
    }
    for (int turn = 0; turn < 5000 && handled < 200; turn++) usleep(1000);
    sigprocmask(SIG_BLOCK, &io, NULL);
    say("handled %d", handled);
    signal(SIGIO, SIG_DFL);
    close(echoing);
    close(other);
}

static volatile sig_atomic_t closed;

/* Reads to the end, and closes. */
static void end(int signal) {
    char buffer[64];
    int before = errno;
    ssize_t got;
    (void)signal;
    while ((got = recv(echoing, buffer, sizeof buffer, MSG_DONTWAIT)) > 0) {}
    if (got == 0 && !closed) {
        close(echoing);
        closed = 1;
    }
    errno = before;
}

static void closing_in_handler(void) {
    struct sigaction action = {.sa_handler = end, .sa_flags = SA_RESTART};
    sigset_t io;
    sigaction(SIGIO, &action, NULL);
    sigemptyset(&io);
    sigaddset(&io, SIGIO);
    int other = open_to('e'), ended = 0;
    for (int turn = 0; turn < 50; turn++) {
        char byte;
        closed = 1;
        echoing = socket(AF_INET, SOCK_STREAM, 0);
        fcntl(echoing, F_SETOWN, getpid());
        connect(echoing, (struct sockaddr *)&peer, sizeof peer);
        asynchronous(echoing, 1);
        closed = 0;
        write(echoing, "c", 1);
        sigprocmask(SIG_UNBLOCK, &io, NULL);
        for (int wait = 0; wait < 5000 && !closed; wait++) {
            write(other, "y", 1);
            while (recv(other, &byte, 1, 0) != 1) {}
        }
        sigprocmask(SIG_BLOCK, &io, NULL);
        ended += closed;
    }
    say("ended %d", ended);
    signal(SIGIO, SIG_DFL);
    close(other);
}

static void unowned(void) {
    int fd = open_to('e');
    fcntl(fd, F_SETOWN, getpid());
    asynchronous(fd, 1);
    fcntl(fd, F_SETOWN, 0);
    write(fd, "a", 1);
    expect_none("for nobody");
    close(fd);
}

int main(int argc, char **argv) {
    const struct check checks[] = {
        {"owners", owners}, {"input", input}, {"about", about}, {"urgent", urgent},
        {"accepted", accepted}, {"waiting", waiting}, {"listening", listening},
        {"connecting", connecting}, {"unowned", unowned}, {"in the handler", in_handler},
        {"closing in the handler", closing_in_handler},
    };
    sigset_t all;
    sigemptyset(&all);
    sigaddset(&all, SIGIO);
    sigaddset(&all, SIGURG);
    sigaddset(&all, TOLD);
    sigprocmask(SIG_BLOCK, &all, NULL);
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}

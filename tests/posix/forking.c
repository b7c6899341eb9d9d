/* Epoll sets that a process has from its parent: what they tell it, and what the parent is told beside it.
   Prints the same on kernel sockets and under the library. Usage: forking PEER-ADDRESS PORT (of peer) */
#define _GNU_SOURCE
#include "probing.h"
#include <sys/wait.h>

/* What the program's own words in a set may be. */
enum { LISTENER = 1, TALKER, OTHER, WORDS };

static const char *add(int set, int fd, int word) {
    struct epoll_event event = {EPOLLIN, {.u64 = word}};
    return result(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
}

/* What a set tells next. */
static void next(int set, const char *what) {
    struct epoll_event events[8];
    int count = epoll_wait(set, events, 8, 10000);
    begin("%s: %s", what, result(count));
    for (int i = 0; i < count; i++) {
        if (events[i].data.u64 < WORDS) more(" %d", (int)events[i].data.u64);
        else more(" stranger");
        more(" %s", bits(events[i].events));
    }
    finish("");
}

static void talk(int set, int fd, const char *what) {
    char byte;
    write(fd, "x", 1);
    next(set, what);
    say("%s: read %s", what, result(recv(fd, &byte, 1, MSG_DONTWAIT)));
}

/* All that a daemon does whose parent has made the set and ended. */
static void serve(int set, int listener, unsigned short port) {
    char greeting[5];
    int asking = call_back(port);
    next(set, "a connection");
    int fd = accept(listener, NULL, NULL);
    say("hello %s", result(recv(fd, greeting, 5, MSG_WAITALL)));
    say("add %s", add(set, fd, TALKER));
    talk(set, fd, "the accepted one");
    int other = open_to('e');
    say("add %s again %s", add(set, other, OTHER), add(set, listener, LISTENER));
    talk(set, other, "the child's own");
    struct epoll_event event = {0};
    say("change %s", result(epoll_ctl(set, EPOLL_CTL_MOD, listener, &event)));
    say("remove %s", result(epoll_ctl(set, EPOLL_CTL_DEL, listener, NULL)));
    say("again %s", result(epoll_ctl(set, EPOLL_CTL_DEL, listener, NULL)));
    close(asking);
}

static void of_a_daemon(void) {
    int done[2];
    char byte;
    pipe(done);
    pid_t first = fork();
    if (first == 0) {
        int listener, set = epoll_create1(0), own = getpid();
        unsigned short port = listen_at_any(&listener);
        say("add %s", add(set, listener, LISTENER));
        if (fork() > 0) _exit(0);
        while (getppid() == own) usleep(100);
        serve(set, listener, port);
        _exit(0);
    }
    close(done[1]);
    waitpid(first, NULL, 0);
    say("ended %s", result(read(done[0], &byte, 1)));
    close(done[0]);
}

/* Waits at the set for a while; how many words it is told that nobody has put there. */
static int strangers(int set, int turns) {
    struct epoll_event events[8];
    int count = 0;
    for (int turn = 0; turn < turns; turn++) {
        int told = epoll_wait(set, events, 8, 5);
        for (int i = 0; i < told; i++) count += events[i].data.u64 >= WORDS || !events[i].data.u64;
    }
    return count;
}

static void beside_the_parent(void) {
    int listener, set = epoll_create1(0), ready[2], status, told = 0;
    char byte;
    unsigned short port = listen_at_any(&listener);
    add(set, listener, LISTENER);
    int talker = open_to('e');
    add(set, talker, TALKER);
    pipe(ready);
    pid_t child = fork();
    if (child == 0) {
        int count = strangers(set, 1);
        write(ready[1], "r", 1);
        count += strangers(set, 300);
        /* What it closes is open with the parent. */
        close(listener);
        close(talker);
        close(set);
        _exit(count > 100 ? 100 : count);
    }
    read(ready[0], &byte, 1);
    while (waitpid(child, &status, WNOHANG) == 0) {
        write(talker, "x", 1);
        told += strangers(set, 1);
        if (poll_one(talker, POLLIN, 10000) != POLLIN || recv(talker, &byte, 1, 0) != 1) say("no echo");
    }
    say("strangers in the child %d in the parent %d", WEXITSTATUS(status), told);
    talk(set, talker, "the talker");
    int asking = call_back(port);
    next(set, "a connection");
    say("accepted %d", accept(listener, NULL, NULL) >= 0);
    close(asking);
    close(set);
}

int main(int argc, char **argv) {
    const struct check checks[] = {
        {"of a daemon", of_a_daemon}, {"beside the parent", beside_the_parent},
    };
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}

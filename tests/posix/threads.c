/* Checks of calls that wait while another thread does something to their socket: closes its descriptor, or
   raises its buffer. As probe.c. Usage: threads PEER-ADDRESS PORT */
#define _GNU_SOURCE
#include "probing.h"
#include <pthread.h>
#include <sys/syscall.h>

/* A call that waits in a thread of its own. */
struct waiting {
    int fd, id, error;
    long got;
    size_t len;
    char bytes[300000];
    pthread_t thread;
};

static void ends(struct waiting *call, long got) {
    call->got = got;
    call->error = got < 0 ? errno : 0;
}

static void begins(struct waiting *call) {
    __atomic_store_n(&call->id, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
}

static void *reads(void *argument) {
    struct waiting *call = argument;
    begins(call);
    ends(call, read(call->fd, call->bytes, call->len));
    return NULL;
}

static void *writes(void *argument) {
    struct waiting *call = argument;
    begins(call);
    ends(call, write(call->fd, call->bytes, call->len));
    return NULL;
}

static void *accepts(void *argument) {
    struct waiting *call = argument;
    begins(call);
    ends(call, accept(call->fd, NULL, NULL));
    return NULL;
}

static struct waiting *start(void *(*body)(void *), int fd, size_t len) {
    struct waiting *call = calloc(1, sizeof *call);
    call->fd = fd;
    call->len = len;
    pthread_create(&call->thread, NULL, body, call);
    until_asleep(&call->id);
    return call;
}

static const char *outcome(const struct waiting *call) {
    errno = call->error;
    return result(call->got);
}

/* A connection to the peer's gate, which it has reached. */
static int at_gate(void) {
    char byte;
    int fd = open_to('g');
    read(fd, &byte, 1);
    return fd;
}

/* Closes the number of a call that waits, which is free at once. */
static void close_under(int fd) {
    more(" close %s", result(close(fd)));
    more(" again %s", result(close(fd)));
    int next = dup(0);
    more(" number is free %d", next == fd);
    close(next);
}

/* Opens the gate; how the connection of who waits there ends. */
static void end_of_gate(int control) {
    char how = '-';
    poll_one(control, POLLIN, 10000);
    more(" read %s", result(read(control, &how, 1)));
    finish(" it ended by %c", how);
    close(control);
}

/* Writes until neither the peer's window nor this end's buffer has room. */
static void fill(int fd) {
    static char bytes[100000];
    nonblocking(fd);
    do {
        while (write(fd, bytes, sizeof bytes) > 0) {}
    } while (poll_one(fd, POLLOUT, 300) > 0);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

static void reader(void) {
    int fd = at_gate();
    struct waiting *call = start(reads, fd, 100);
    begin("reader");
    close_under(fd);
    int control = open_to('o');
    pthread_join(call->thread, NULL);
    more(" got %s", outcome(call));
    more(" %.4s", call->bytes);
    end_of_gate(control);
    free(call);
}

static void writer(void) {
    int fd = at_gate(), small = 20000;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    fill(fd);
    struct waiting *call = start(writes, fd, sizeof call->bytes);
    begin("writer");
    close_under(fd);
    int control = open_to('o');
    pthread_join(call->thread, NULL);
    more(" got %s", outcome(call));
    /* "late" is unread when the connection is closed. */
    end_of_gate(control);
    free(call);
}

static void acceptor(void) {
    int listener;
    unsigned short port = listen_at_any(&listener);
    struct waiting *call = start(accepts, listener, 0);
    begin("acceptor");
    close_under(listener);
    int control = call_back(port);
    pthread_join(call->thread, NULL);
    more(" got %d", call->got >= 0);
    char bytes[8] = "";
    more(" and %s", result(recv(call->got, bytes, 5, MSG_WAITALL)));
    more(" %s", bytes);
    close(call->got);
    /* The listener is gone with the call. */
    char byte;
    more(" control %s", result(read(control, &byte, 1)));
    close(control);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = port};
    int again = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(again, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    more(" bind %s", result(bind(again, (struct sockaddr *)&own, sizeof own)));
    finish(" listen %s", result(listen(again, 1)));
    close(again);
    free(call);
}

static void hearer(void) {
    struct sockaddr_in own = {.sin_family = AF_INET}, source;
    socklen_t len = sizeof own;
    int fd = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
    connect(other, (struct sockaddr *)&peer, sizeof peer);
    getsockname(other, (struct sockaddr *)&source, &len);
    own.sin_addr = source.sin_addr;
    bind(fd, (struct sockaddr *)&own, sizeof own);
    getsockname(fd, (struct sockaddr *)&own, &len);
    struct waiting *call = start(reads, fd, 100);
    begin("hearer");
    close_under(fd);
    more(" sent %s", result(sendto(other, "hello", 5, 0, (struct sockaddr *)&own, sizeof own)));
    pthread_join(call->thread, NULL);
    more(" got %s", outcome(call));
    /* The port is free with the call. */
    int again = socket(AF_INET, SOCK_DGRAM, 0);
    finish(" bind %s", result(bind(again, (struct sockaddr *)&own, sizeof own)));
    close(again);
    close(other);
    free(call);
}

/* A connection with a second number does not need the call. */
static void duplicate(void) {
    int fd = at_gate(), second = dup(fd);
    struct waiting *call = start(reads, fd, 100);
    begin("duplicate");
    close_under(fd);
    int control = open_to('o');
    pthread_join(call->thread, NULL);
    more(" got %s", outcome(call));
    more(" closed %s", result(close(second)));
    end_of_gate(control);
    free(call);
}

/* A larger buffer has room for what a writer waits with. */
static void raised(void) {
    int fd = at_gate(), small = 20000, large = 2000000;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    fill(fd);
    struct waiting *call = start(writes, fd, sizeof call->bytes);
    begin("raised %s", result(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &large, sizeof large)));
    pthread_join(call->thread, NULL);
    more(" got %s", outcome(call));
    int control = open_to('o');
    more(" closed %s", result(shutdown(fd, SHUT_WR)));
    end_of_gate(control);
    close(fd);
    free(call);
}

int main(int argc, char **argv) {
    static const struct check checks[] = {
        {"reader", reader}, {"writer", writer}, {"acceptor", acceptor}, {"hearer", hearer},
        {"duplicate", duplicate}, {"raised", raised},
    };
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}

/* The other end of the dual-run checks: what it does with a connection, the first byte says.
   Always on kernel sockets. Usage: peer PORT */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int port;

static void echo(int fd) {
    static __thread char buffer[65536];
    ssize_t got;
    while ((got = read(fd, buffer, sizeof buffer)) > 0)
        for (ssize_t at = 0; at < got;) {
            ssize_t put = write(fd, buffer + at, got - at);
            if (put <= 0) return;
            at += put;
        }
}

/* Connects back to the program under test and echoes; `text` is sent first. */
static void call_back(int fd) {
    struct sockaddr_in to;
    socklen_t len = sizeof to;
    unsigned short where;
    if (recv(fd, &where, 2, MSG_WAITALL) != 2) return;
    getpeername(fd, (struct sockaddr *)&to, &len);
    to.sin_port = where;
    int back = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(back, (struct sockaddr *)&to, sizeof to) == 0) {
        write(back, "hello", 5);
        echo(back);
    }
    close(back);
}

/* Sends a byte out of band, awaits one, and sends that back in the stream. */
static void urge(int fd) {
    struct pollfd asked = {.fd = fd, .events = POLLPRI};
    char byte;
    send(fd, "abc!", 4, MSG_OOB);
    if (poll(&asked, 1, 10000) != 1 || recv(fd, &byte, 1, MSG_OOB) != 1) return;
    write(fd, &byte, 1);
    write(fd, "def", 3);
    while (read(fd, &byte, 1) > 0) {}
}

/* A gate for each host that asks: who waits behind it, whether it is open, and how their connection ended. */
static struct gate {
    in_addr_t who;
    int open, ended;
} gates[8];
static pthread_mutex_t gates_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gates_changed = PTHREAD_COND_INITIALIZER;

static struct gate *gate_of(int fd) {
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    getpeername(fd, (struct sockaddr *)&from, &len);
    for (size_t i = 0; i < sizeof gates / sizeof *gates; i++) {
        if (!gates[i].who) gates[i].who = from.sin_addr.s_addr;
        if (gates[i].who == from.sin_addr.s_addr) return &gates[i];
    }
    exit(2);
}

/* Waits until the gate is opened, says "late" and reads until the end. */
static void wait_at_gate(int fd) {
    static __thread char bytes[65536];
    pthread_mutex_lock(&gates_lock);
    struct gate *gate = gate_of(fd);
    gate->open = gate->ended = 0;
    write(fd, "w", 1);
    while (!gate->open) pthread_cond_wait(&gates_changed, &gates_lock);
    pthread_mutex_unlock(&gates_lock);
    write(fd, "late", 4);
    ssize_t got;
    while ((got = read(fd, bytes, sizeof bytes)) > 0) {}
    pthread_mutex_lock(&gates_lock);
    gate->ended = got ? 'R' : 'E';
    pthread_cond_broadcast(&gates_changed);
    pthread_mutex_unlock(&gates_lock);
}

/* Opens the gate, and says how the connection of who waited there has ended. */
static void open_gate(int fd) {
    char how;
    pthread_mutex_lock(&gates_lock);
    struct gate *gate = gate_of(fd);
    gate->open = 1;
    pthread_cond_broadcast(&gates_changed);
    while (!gate->ended) pthread_cond_wait(&gates_changed, &gates_lock);
    how = gate->ended;
    pthread_mutex_unlock(&gates_lock);
    write(fd, &how, 1);
}

static void *serve(void *argument) {
    int fd = (int)(long)argument;
    char what = 0, byte;
    struct linger hard = {1, 0};
    if (read(fd, &what, 1) == 1) switch (what) {
    case 'e': echo(fd); break;
    case 'b': call_back(fd); break;
    case 'u': urge(fd); break;
    case 'g': wait_at_gate(fd); break;
    case 'o': open_gate(fd); break;
    case 'r': setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard); break;
    case 'h': write(fd, "bye", 3); shutdown(fd, SHUT_WR); while (read(fd, &byte, 1) > 0) {} break;
    case 'c': write(fd, "bye", 3); break;
    case 's': /* slow to begin */
        usleep(1500000);
        while (recv(fd, (char[65536]){0}, 65536, 0) > 0) {}
        break;
    case 'd': /* it dribbles */
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){16384}, sizeof(int));
        while (recv(fd, (char[16384]){0}, 16384, 0) > 0) usleep(50000);
        break;
    case 'q': while (read(fd, &byte, 1) > 0) {} break;
    case 't': /* a trickle: the bytes come one by one */
        for (int i = 0; i < 5; i++) { usleep(20000); write(fd, "12345" + i, 1); }
        while (read(fd, &byte, 1) > 0) {}
        break;
    }
    close(fd);
    return NULL;
}

static void *datagrams(void *unused) {
    (void)unused;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(fd, (struct sockaddr *)&here, sizeof here)) exit(2);
    static char buffer[65536], control[256];
    /* Two programs' bursts may come together. */
    int on = 1, room = 4 << 20;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof on);
    setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof on);
    for (;;) {
        struct sockaddr_in from;
        struct iovec part = {buffer, sizeof buffer};
        struct msghdr message = {&from, sizeof from, &part, 1, control, sizeof control, 0};
        ssize_t got = recvmsg(fd, &message, 0);
        /* How it came is the answer to a question mark. */
        if (got == 1 && buffer[0] == '?') {
            int tos = -1, ttl = -1;
            for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
                if (at->cmsg_type == IP_TOS) tos = *CMSG_DATA(at);
                if (at->cmsg_type == IP_TTL) memcpy(&ttl, CMSG_DATA(at), sizeof ttl);
            }
            got = sprintf(buffer, "tos %x ttl %d", tos, ttl);
        }
        if (got >= 0) sendto(fd, buffer, got, 0, (struct sockaddr *)&from, sizeof from);
    }
}

int main(int argc, char **argv) {
    port = argc > 1 ? atoi(argv[1]) : 15001;
    signal(SIGPIPE, SIG_IGN);
    pthread_t thread;
    pthread_create(&thread, NULL, datagrams, NULL);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (bind(fd, (struct sockaddr *)&here, sizeof here) || listen(fd, 64)) return 2;
    for (;;) {
        int new = accept(fd, NULL, NULL);
        if (new < 0) continue;
        setsockopt(new, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        pthread_create(&thread, NULL, serve, (void *)(long)new);
        pthread_detach(thread);
    }
}

/* Sockets by syscall(2), and numbers that are closed and opened past the C library. Prints the same on
   kernel sockets and under the library.
   Usage: raw PEER-ADDRESS PORT (of the program peer) */
#define _GNU_SOURCE
#include "probing.h"
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char room[64];

/* While it is set, another thread counts as being in the allocator: a child of this process ends in there. */
static volatile pid_t allocating;
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);

static void enter_allocator(void) {
    if (allocating && getpid() != allocating) _exit(77);
}

void *malloc(size_t len) {
    enter_allocator();
    return __libc_malloc(len);
}

void *calloc(size_t count, size_t len) {
    enter_allocator();
    return __libc_calloc(count, len);
}

/* A system call that no library sees. */
static long inlined(long number, long a, long b, long c, long d) {
    long outcome;
#ifdef __x86_64__
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(outcome) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
#else
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c, x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    outcome = x0;
#endif
    return outcome;
}

static int open_by_number(char what) {
    int fd = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0), on = 1;
    if (syscall(SYS_connect, fd, &peer, sizeof peer)) {
        say("cannot connect: %s", strerrorname_np(errno));
        exit(1);
    }
    syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    syscall(SYS_write, fd, &what, 1);
    return fd;
}

static void streams(void) {
    int fd = open_by_number('e'), value = 0;
    struct iovec two[2] = {{"ab", 2}, {"cd", 2}}, in = {room, 4};
    struct msghdr out = {.msg_iov = two, .msg_iovlen = 2}, back = {.msg_iov = &in, .msg_iovlen = 1};
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    begin("%s", result(syscall(SYS_sendto, fd, "1", 1, 0, NULL, 0)));
    more(" %s", result(syscall(SYS_recvfrom, fd, room, 8, 0, NULL, NULL)));
    more(" %s", result(syscall(SYS_writev, fd, two, 2)));
    more(" %s", result(recv(fd, room, 4, MSG_WAITALL)));
    more(" %s", result(syscall(SYS_sendmsg, fd, &out, 0)));
    finish(" %s", result(syscall(SYS_recvmsg, fd, &back, MSG_WAITALL)));
    say("%.4s", room);
    begin("%s", result(syscall(SYS_getpeername, fd, &name, &len)));
    more(" %d %d", len, name.sin_port == peer.sin_port);
    len = sizeof value;
    more(" %s", result(syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &value, &len)));
    finish(" %d", value);
    begin("%s", result(syscall(SYS_fcntl, fd, F_SETFL, O_RDWR | O_NONBLOCK)));
    more(" %s", result(syscall(SYS_read, fd, room, 8)));
    more(" %#lx", syscall(SYS_fcntl, fd, F_GETFL));
    value = 0;
    more(" %s", result(syscall(SYS_ioctl, fd, FIONBIO, &value)));
    finish(" %#x", fcntl(fd, F_GETFL));
    begin("%s", result(syscall(SYS_shutdown, fd, SHUT_WR)));
    more(" %s", result(syscall(SYS_read, fd, room, 8)));
    more(" %s", result(syscall(SYS_close, fd)));
    finish(" %s", result(syscall(SYS_close, fd)));
}

static void duplicates(void) {
    int fd = open_by_number('e'), copy = syscall(SYS_dup, fd);
    syscall(SYS_close, fd);
    begin("%s", result(write(copy, "x", 1)));
    more(" %s", result(recv(copy, room, 1, 0)));
    int high = syscall(SYS_fcntl, copy, F_DUPFD_CLOEXEC, 100);
    syscall(SYS_dup3, copy, 200, 0);
    syscall(SYS_close_range, copy, copy, 0);
    more(" %d %s", high, result(write(high, "y", 1)));
    finish(" %s", result(recv(200, room, 1, 0)));
    close(high);
    close(200);
}

static void listeners(void) {
    int listener, port = listen_at_any(&listener), call = call_back(port);
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    int fd = syscall(SYS_accept4, listener, &name, &len, SOCK_CLOEXEC);
    begin("%d %s", fd >= 0, result(recv(fd, room, 5, MSG_WAITALL)));
    finish(" %.5s %d", room, fcntl(fd, F_GETFD));
    syscall(SYS_close, fd);
    syscall(SYS_close, listener);
    close(call);
}

static void waits(void) {
    int fd = open_by_number('e'), set = syscall(SYS_epoll_create1, 0);
    struct epoll_event event = {EPOLLIN, {.u64 = 7}}, told;
    struct pollfd asked = {fd, POLLIN, 0};
    struct timespec time = {0, 20000000}, none = {0, 0};
    unsigned long mask[2] = {0, 0}, of_mask[2] = {(unsigned long)mask, 8};
    fd_set set_of;
    syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, fd, &event);
    /* What is left of the time is told. */
    begin("%s", result(syscall(SYS_ppoll, &asked, 1, &time, NULL, 0)));
    finish(" %ld %ld", time.tv_sec, time.tv_nsec);
    begin("%s", result(syscall(SYS_ppoll, &asked, 1, &none, mask, 8)));
    more(" %s", result(syscall(SYS_ppoll, &asked, 1, &none, mask, 4)));
    more(" %s", result(syscall(SYS_epoll_pwait, set, &told, 1, 0, mask, 8)));
    finish(" %s", result(syscall(SYS_epoll_pwait, set, &told, 1, 0, mask, 16)));
    write(fd, "z", 1);
    time.tv_sec = 10;
    begin("%s", result(syscall(SYS_epoll_pwait, set, &told, 1, 10000, NULL, 0)));
    more(" %s%lu", bits(told.events), (unsigned long)told.data.u64);
    more(" %s", result(syscall(SYS_ppoll, &asked, 1, &time, mask, 8)));
    finish(" %s%d", bits(asked.revents), time.tv_sec >= 9);
    FD_ZERO(&set_of);
    FD_SET(fd, &set_of);
    time = (struct timespec){10, 0};
    begin("%s", result(syscall(SYS_pselect6, fd + 1, &set_of, NULL, NULL, &time, of_mask)));
    more(" %d %d", FD_ISSET(fd, &set_of), time.tv_sec >= 9);
    of_mask[1] = 4;
    finish(" %s", result(syscall(SYS_pselect6, fd + 1, &set_of, NULL, NULL, &time, of_mask)));
    recv(fd, room, 1, 0);
    FD_SET(fd, &set_of);
    time = (struct timespec){0, 20000000};
    begin("%s", result(syscall(SYS_pselect6, fd + 1, &set_of, NULL, NULL, &time, NULL)));
    finish(" %d %ld %ld", FD_ISSET(fd, &set_of), time.tv_sec, time.tv_nsec);
    syscall(SYS_close, set);
    syscall(SYS_close, fd);
}

/* A file of which the content is told, by whichever call it was opened. */
static void tell_file(int file, int number) {
    begin("%d %s", file == number, result(write(file, "content", 7)));
    more(" %s", result(lseek(file, 0, SEEK_SET)));
    memset(room, 0, sizeof room);
    more(" %s", result(read(file, room, sizeof room)));
    finish(" %s", room);
    close(file);
}

/* Numbers of connections that are closed past the library, and files that get them. */
static void reused(void) {
    int fd = open_to('e');
    syscall(SYS_close, fd);
    tell_file(memfd_create("file", 0), fd);
    fd = open_to('e');
    syscall(SYS_close, fd);
    tell_file(syscall(SYS_memfd_create, "file", 0), fd);
    fd = open_to('e');
    inlined(SYS_close, fd, 0, 0, 0);
    tell_file(memfd_create("file", 0), fd);
    fd = open_to('e');
    inlined(SYS_close, fd, 0, 0, 0);
    tell_file(syscall(SYS_memfd_create, "file", 0), fd);
    fd = open_to('e');
    inlined(SYS_close, fd, 0, 0, 0);
    int other = socket(AF_UNIX, SOCK_STREAM, 0);
    begin("%d %s", other == fd, result(write(other, "x", 1)));
    close(other);
    fd = open_to('e');
    inlined(SYS_close, fd, 0, 0, 0);
    int ends[2];
    pipe(ends);
    more(" %d %s", ends[0] == fd, result(read(ends[0], room, 0)));
    close(ends[0]);
    close(ends[1]);
    fd = open_to('e');
    inlined(SYS_close, fd, 0, 0, 0);
    FILE *file = fopen("/dev/null", "r");
    finish(" %d %s", fileno(file) == fd, result(read(fileno(file), room, 1)));
    fclose(file);
    /* Closed and opened past it: noticed after a while. */
    fd = open_to('e');
    inlined(SYS_close, fd, 0, 0, 0);
    int unseen = inlined(SYS_memfd_create, (long)"file", 0, 0, 0);
    struct timespec began;
    clock_gettime(CLOCK_MONOTONIC, &began);
    while (elapsed_ms(began) < 30) {}
    tell_file(unseen, fd);
}

/* A descriptor that comes with a message gets a number that was closed past the library. */
static void received(void) {
    int ends[2], file = memfd_create("file", 0), fd;
    char byte;
    socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof fd)];
    } rights = {.header = {CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS}};
    memcpy(CMSG_DATA(&rights.header), &file, sizeof file);
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &rights,
                             .msg_controllen = sizeof rights};
    sendmsg(ends[0], &message, 0);
    fd = open_to('e');
    inlined(SYS_close, fd, 0, 0, 0);
    recvmsg(ends[1], &message, 0);
    int came;
    memcpy(&came, CMSG_DATA(&rights.header), sizeof came);
    tell_file(came, fd);
    close(ends[0]);
    close(ends[1]);
    close(file);
}

static int as_child(int inherited) {
    char byte = 0;
    syscall(SYS_close, inherited);
    int fd = open_to('e');
    write(fd, "c", 1);
    recv(fd, &byte, 1, 0);
    close(fd);
    return byte == 'c' ? 5 : 6;
}

/* Children made by number use sockets of their own, and close the parent's without harm. */
static void children(void) {
    int fd = open_to('e'), status = 0;
    long asked[11] = {0};
    asked[4] = SIGCHLD;
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(as_child(fd));
    waitpid(child, &status, 0);
    begin("%d", WEXITSTATUS(status));
    child = syscall(SYS_clone3, asked, sizeof asked);
    if (child == 0) _exit(as_child(fd));
    waitpid(child, &status, 0);
    more(" %d", WEXITSTATUS(status));
#ifdef SYS_fork
    child = syscall(SYS_fork);
    if (child == 0) _exit(as_child(fd));
    waitpid(child, &status, 0);
#endif
    more(" %d", WEXITSTATUS(status));
    more(" %s", result(syscall(SYS_clone3, 16, sizeof asked)));
    more(" %s", result(write(fd, "p", 1)));
    finish(" %s", result(recv(fd, room, 1, 0)));
    close(fd);
}

static void *idle(void *end) {
    read(*(int *)end, &room[32], 1);
    return NULL;
}

/* A child made by number has the allocator's locks as another thread held them: nothing may allocate there. */
static void children_of_threads(void) {
    int fd = open_to('e'), ends[2], status = 0;
    long asked[11] = {0};
    pthread_t thread;
    asked[4] = SIGCHLD;
    pipe(ends);
    pthread_create(&thread, NULL, idle, &ends[0]);
    allocating = getpid();
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(syscall(SYS_close, fd) ? 6 : 5);
    waitpid(child, &status, 0);
    int first = WEXITSTATUS(status);
    child = syscall(SYS_clone3, asked, sizeof asked);
    if (child == 0) _exit(syscall(SYS_close, fd) ? 6 : 5);
    waitpid(child, &status, 0);
    allocating = 0;
    begin("%d", first);
    more(" %d", WEXITSTATUS(status));
    write(ends[1], "e", 1);
    pthread_join(thread, NULL);
    more(" %s", result(write(fd, "p", 1)));
    finish(" %s", result(recv(fd, room, 1, 0)));
    close(ends[0]);
    close(ends[1]);
    close(fd);
}

/* Memory that is protected by number is not taken for what it was. */
static void memory(void) {
    int fd = open_to('e');
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    begin("%s", result(write(fd, page, 4)));
    more(" %s", result(recv(fd, page, 4, MSG_WAITALL)));
    syscall(SYS_mprotect, page, 4096, PROT_NONE);
    more(" %s", result(write(fd, page, 4)));
    long at = syscall(SYS_mmap, page, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    more(" %d", at == (long)page);
    more(" %s", result(write(fd, page, 4)));
    syscall(SYS_munmap, page, 4096);
    finish(" %s", result(write(fd, page, 4)));
    close(fd);
}

#ifdef __x86_64__
static void on_own_stack(void) { inlined(SYS_exit, 9, 0, 0, 0); }
#endif

/* A child with its parent's memory and a stack of its own finds nothing of the library's there. */
static void borrowed_memory(void) {
    int status = 9 << 8;
#ifdef __x86_64__
    static long stack[4096] __attribute__((aligned(16)));
    stack[4094] = (long)on_own_stack;
    long child = syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, &stack[4094], 0, 0, 0);
    waitpid(child, &status, 0);
#endif
    say("%d", WEXITSTATUS(status));
}

int main(int argc, char **argv) {
    const struct check checks[] = {
        {"streams", streams}, {"duplicates", duplicates}, {"listeners", listeners},
        {"waits", waits}, {"reused", reused}, {"received", received},
        {"children", children}, {"borrowed memory", borrowed_memory},
        {"children of threads", children_of_threads}, {"memory", memory},
    };
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}

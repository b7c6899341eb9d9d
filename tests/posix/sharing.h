/* What the dual-run checks of shared descriptors have in common: sockets in every state ("things") that one
   holder makes and another uses, children, and messages that pass descriptors. Included after probing.h. */
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

/* Path of the running program, which starts itself anew. */
static char own_path[512];
/* Its arguments: the peer's address and port. */
static char **own_arguments;

/* Writes a text to an echoing peer; what comes back. */
UNUSED static const char *echoed(int fd, const char *text) {
    static char back[4][64];
    static int turn;
    char *place = back[turn = (turn + 1) % 4];
    ssize_t len = strlen(text), got = send(fd, text, len, MSG_NOSIGNAL), at = 0;
    if (got != len) return strerrorname_np(errno);
    while (at < len && (poll_one(fd, POLLIN, 10000), got = read(fd, place + at, len - at)) > 0) at += got;
    if (got < 0) return strerrorname_np(errno);
    place[at] = 0;
    return place;
}

/* Reads so many bytes and says what they are. */
UNUSED static void says_next(const char *what, int fd, size_t len) {
    char bytes[64] = "";
    ssize_t got = recv(fd, bytes, len, MSG_WAITALL);
    say("%s: %s %.60s", what, result(got), got > 0 ? bytes : "");
}

/* Waits until so many bytes can be read. */
UNUSED static void until_queued(int fd, int len) {
    for (int queued = 0, turn = 0; queued < len && turn < 10000; turn++) {
        poll_one(fd, POLLIN, 1);
        ioctl(fd, FIONREAD, &queued);
    }
}

/* Waits for a child; how it ended, if it was not by exit(0). */
UNUSED static void await(pid_t child) {
    int status = -1;
    if (waitpid(child, &status, 0) < 0) say("wait: %s", strerrorname_np(errno));
    else if (WIFSIGNALED(status)) say("killed by %d", WTERMSIG(status));
    else if (status) say("ended with %d", WEXITSTATUS(status));
}

/* Runs `body` in a child; its number. */
UNUSED static pid_t child_of(void (*body)(int), int fd) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        body(fd);
        _exit(0);
    }
    return child;
}

/* Runs `body` in a child to its end. */
UNUSED static void in_child(void (*body)(int), int fd) { await(child_of(body, fd)); }

UNUSED static void talks(int fd) { say("child: %s", echoed(fd, "from the child")); }

/* Sends descriptors over a socket of the kernel's. */
UNUSED static long pass(int over, const int *fds, int count) {
    char byte = 'p', room[CMSG_SPACE(sizeof(int) * 8)] = "";
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room};
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
    return sendmsg(over, &message, 0);
}

/* What came with a message: how many descriptors, and the message's flags. */
struct taken {
    int count, fds[8], flags;
};

UNUSED static struct taken take_with(int over, size_t room_len, int flags) {
    struct taken taken = {-1, {0}, 0};
    char byte, room[CMSG_SPACE(sizeof(int) * 8)];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = room_len};
    if (recvmsg(over, &message, flags) <= 0) return taken;
    taken.flags = message.msg_flags;
    taken.count = 0;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header) return taken;
    taken.count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(taken.fds, CMSG_DATA(header), taken.count * sizeof(int));
    return taken;
}

UNUSED static int take(int over, int *fds) {
    struct taken taken = take_with(over, CMSG_SPACE(sizeof(int) * 8), 0);
    if (taken.count > 0) memcpy(fds, taken.fds, taken.count * sizeof(int));
    return taken.count;
}

/* A connection that waits at the peer's gate, which keeps what is written to it unread. */
UNUSED static int at_gate(void) {
    char byte;
    int fd = open_to('g');
    read(fd, &byte, 1);
    return fd;
}

/* Opens the gate and says how the connection that waited there has ended: E by an end, R by a reset. */
UNUSED static void says_end(int opener) {
    char how = '?';
    read(opener, &how, 1);
    say("the peer saw %c", how);
    close(opener);
}

/* Ends a connection that waits at the gate, and waits until the peer has seen that. */
UNUSED static void leave_gate(int fd) {
    char how;
    int opener = open_to('o');
    close(fd);
    read(opener, &how, 1);
    close(opener);
}

/* A socket in some state. */
struct thing {
    const char *name;
    /* Makes it, in its first holder. */
    int (*make)(void);
    /* Uses it, in another. */
    void (*use)(int);
    /* Uses it in the first again. */
    void (*after)(int);
};

/* What belongs to the present thing and is not handed on. */
static int beside = -1;

static int make_connected(void) { return open_to('e'); }
static void use_connected(int fd) { say("uses: %s", echoed(fd, "by another")); }
static void after_connected(int fd) { say("after: %s", echoed(fd, "by the first")); }

static int make_duplicate(void) {
    int fd = open_to('e'), copy = dup(fd);
    close(fd);
    return copy;
}

static int make_mapped(void) {
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = peer.sin_port};
    to.sin6_addr.s6_addr[10] = to.sin6_addr.s6_addr[11] = 0xff;
    memcpy(&to.sin6_addr.s6_addr[12], &peer.sin_addr, 4);
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) say("cannot connect: %s", strerrorname_np(errno));
    write(fd, "e", 1);
    return fd;
}
static void use_mapped(int fd) {
    struct sockaddr_in6 name;
    socklen_t len = sizeof name;
    begin("peer %s", result(getpeername(fd, (struct sockaddr *)&name, &len)));
    finish(" %d %d %d", len, name.sin6_family == AF_INET6, name.sin6_port == peer.sin_port);
    use_connected(fd);
}

static int make_unread(void) {
    int fd = open_to('e');
    write(fd, "abcdef", 6);
    until_queued(fd, 6);
    return fd;
}
static void use_unread(int fd) { says_next("uses", fd, 3); }
static void after_unread(int fd) { says_next("after", fd, 3); }

static int make_half_closed(void) {
    int fd = open_to('e');
    shutdown(fd, SHUT_WR);
    return fd;
}
static void use_half_closed(int fd) {
    begin("writes: %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
    char byte;
    finish(" reads: %s", result(read(fd, &byte, 1)));
}

static int make_ended(void) {
    int fd = open_to('h');
    poll_one(fd, POLLRDHUP, 10000);
    return fd;
}
static void use_ended(int fd) {
    char byte;
    says_next("uses", fd, 3);
    begin("then: %s", result(read(fd, &byte, 1)));
    finish(" writes: %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
}
static void after_ended(int fd) {
    char byte;
    begin("after: %s", result(read(fd, &byte, 1)));
    finish(" writes: %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
}

static int make_reset(void) {
    int fd = open_to('r');
    poll_one(fd, POLLRDHUP, 10000);
    while (!(poll_one(fd, POLLIN, 1000) & POLLERR)) {}
    return fd;
}
static void use_reset(int fd) {
    char byte;
    begin("uses: %s", result(read(fd, &byte, 1)));
    more(" then %s", result(read(fd, &byte, 1)));
    finish(" writes: %s", result(send(fd, "x", 1, MSG_NOSIGNAL)));
}
static void after_reset(int fd) {
    char byte;
    say("after: %s", result(read(fd, &byte, 1)));
}

static int make_accepted(void) {
    int listener;
    unsigned short port = listen_at_any(&listener);
    beside = call_back(port);
    int fd = accept(listener, NULL, NULL);
    close(listener);
    return fd;
}
static void use_accepted(int fd) {
    says_next("uses", fd, 5);
    use_connected(fd);
}

static int make_listener(void) {
    int listener;
    listen_at_any(&listener);
    return listener;
}
static void use_listener(int listener) {
    struct sockaddr_in own;
    socklen_t len = sizeof own;
    getsockname(listener, (struct sockaddr *)&own, &len);
    int asking = call_back(own.sin_port), fd = accept(listener, NULL, NULL);
    begin("listens %d", int_option(listener, SOL_SOCKET, SO_ACCEPTCONN));
    finish(" accepts %s", result(fd < 0 ? -1 : 0));
    says_next("hears", fd, 5);
    use_connected(fd);
    close(fd);
    close(asking);
}

static int make_bound(void) {
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in own = {.sin_family = AF_INET};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bind(fd, (struct sockaddr *)&own, sizeof own);
    return fd;
}
static void use_bound(int fd) {
    say("listen: %s", result(listen(fd, 4)));
    use_listener(fd);
}

static int make_fresh(void) { return socket(AF_INET, SOCK_STREAM, 0); }
static void use_fresh(int fd) {
    say("connect: %s", result(connect(fd, (struct sockaddr *)&peer, sizeof peer)));
    write(fd, "e", 1);
    use_connected(fd);
}

static int make_nonblocking(void) {
    int fd = open_to('e');
    nonblocking(fd);
    return fd;
}
static void use_nonblocking(int fd) {
    char byte;
    begin("nonblocking %d", !!(fcntl(fd, F_GETFL) & O_NONBLOCK));
    finish(" reads: %s", result(read(fd, &byte, 1)));
    use_connected(fd);
}

/* A set that tells of a connection, beside the set, that has a byte to be read. */
static int make_set(void) {
    int set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u64 = 7}};
    beside = open_to('e');
    epoll_ctl(set, EPOLL_CTL_ADD, beside, &event);
    write(beside, "x", 1);
    return set;
}
static void use_set(int set) {
    struct epoll_event event = {0};
    begin("told %s", result(epoll_wait(set, &event, 1, 10000)));
    finish(" %s%d", bits(event.events), (int)event.data.u64);
}

static void after_nothing(int fd) { (void)fd; }

static const struct thing things[] = {
    {"connected", make_connected, use_connected, after_connected},
    {"duplicate", make_duplicate, use_connected, after_connected},
    {"mapped", make_mapped, use_mapped, after_connected},
    {"unread", make_unread, use_unread, after_unread},
    {"half closed", make_half_closed, use_half_closed, use_half_closed},
    {"ended", make_ended, use_ended, after_ended},
    {"reset", make_reset, use_reset, after_reset},
    {"accepted", make_accepted, use_accepted, after_connected},
    {"listener", make_listener, use_listener, use_listener},
    {"bound", make_bound, use_bound, after_nothing},
    {"fresh", make_fresh, use_fresh, after_nothing},
    {"nonblocking", make_nonblocking, use_nonblocking, use_nonblocking},
    {"set", make_set, use_set, use_set},
};
enum { THINGS = sizeof things / sizeof *things };

/* Runs a check for each thing, called by the way it is handed on and its name. */
UNUSED static void each_thing(const char *way, void (*hand)(const struct thing *, int)) {
    static char name[64];
    for (int i = 0; i < THINGS; i++) {
        snprintf(name, sizeof name, "%s: %s", way, things[i].name);
        check = name;
        beside = -1;
        int fd = things[i].make();
        hand(&things[i], fd);
        things[i].after(fd);
        close(fd);
        if (beside >= 0) close(beside);
    }
}

/* Arguments for this program to use a thing as another one: held CHECK THING NUMBER ADDRESS PORT. */
struct held {
    char thing[8], number[8], *arguments[8];
};

UNUSED static char **held_arguments(struct held *held, const struct thing *thing, int fd) {
    snprintf(held->thing, sizeof held->thing, "%d", thing ? (int)(thing - things) : -1);
    snprintf(held->number, sizeof held->number, "%d", fd);
    char *arguments[8] = {own_path, "held", (char *)check, held->thing, held->number, own_arguments[1],
                          own_arguments[2], NULL};
    memcpy(held->arguments, arguments, sizeof arguments);
    return held->arguments;
}

/* Uses what it was started with; whether that is what it was started for. */
UNUSED static int runs_held(int argc, char **argv) {
    ssize_t len = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    own_arguments = argv;
    signal(SIGPIPE, SIG_IGN);
    if (argc != 7 || len < 0 || strcmp(argv[1], "held")) return 0;
    int thing = atoi(argv[3]), fd = atoi(argv[4]);
    check = argv[2];
    peer.sin_family = AF_INET;
    peer.sin_port = htons(atoi(argv[6]));
    inet_pton(AF_INET, argv[5], &peer.sin_addr);
    if (fcntl(fd, F_GETFD) < 0) say("not open: %s", strerrorname_np(errno));
    else if (thing >= 0 && thing < THINGS) things[thing].use(fd);
    else say("open");
    return 1;
}

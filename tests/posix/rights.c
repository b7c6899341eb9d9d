/* Sockets that are passed by messages (SCM_RIGHTS). Prints the same on kernel sockets and under the library.
   Usage: rights PEER-ADDRESS PORT (of peer) */
#define _GNU_SOURCE
#include "probing.h"
#include "sharing.h"
#include <sys/mman.h>
#include <sys/un.h>

/* Room for one number, and for all that come here. */
enum { ROOM_ONE = CMSG_SPACE(sizeof(int)), ROOM = CMSG_SPACE(sizeof(int) * 8) };

static int ends[2];

static void begin_pair(int type) { socketpair(AF_UNIX, type, 0, ends); }
static void end_pair(void) {
    close(ends[0]);
    close(ends[1]);
}

/* Handed to a child that has it by the message alone. */
static void to_stranger(const struct thing *thing, int fd) {
    begin_pair(SOCK_STREAM);
    say("pass %s", result(pass(ends[0], &fd, 1)));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(fd);
        if (beside >= 0 && strcmp(thing->name, "set")) close(beside);
        int came = -1;
        say("took %d", take(ends[1], &came));
        thing->use(came);
        _exit(0);
    }
    await(child);
    end_pair();
}

/* Handed to the process that has it already, under another number. */
static void to_itself(const struct thing *thing, int fd) {
    begin_pair(SOCK_DGRAM);
    int came = -1;
    begin("pass %s", result(pass(ends[0], &fd, 1)));
    finish(" took %d", take(ends[1], &came));
    thing->use(came);
    close(came);
    end_pair();
}

/* Over every kind of socket. */
static void over(int type) {
    int fd = open_to('e'), came = -1;
    begin_pair(type);
    begin("pass %s", result(pass(ends[0], &fd, 1)));
    finish(" took %d", take(ends[1], &came));
    close(fd);
    use_connected(came);
    close(came);
    end_pair();
}
static void over_stream(void) { over(SOCK_STREAM); }
static void over_datagrams(void) { over(SOCK_DGRAM); }
static void over_packets(void) { over(SOCK_SEQPACKET); }

static void over_named(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t len = sizeof name;
    int bound = socket(AF_UNIX, SOCK_DGRAM, 0), from = socket(AF_UNIX, SOCK_DGRAM, 0), fd = open_to('e'), came = -1;
    /* The kernel chooses a name. */
    bind(bound, (struct sockaddr *)&name, sizeof name.sun_family);
    getsockname(bound, (struct sockaddr *)&name, &len);
    connect(from, (struct sockaddr *)&name, len);
    begin("pass %s", result(pass(from, &fd, 1)));
    finish(" took %d", take(bound, &came));
    close(fd);
    use_connected(came);
    close(came);
    close(bound);
    close(from);
}

static void by_number(void) {
    int fd = open_to('e'), came = -1;
    char byte = 'n', room[ROOM_ONE] = "";
    begin_pair(SOCK_DGRAM);
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = ROOM_ONE};
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &fd, sizeof fd);
    begin("pass %s", result(syscall(SYS_sendmsg, ends[0], &message, 0)));
    finish(" take %s", result(syscall(SYS_recvmsg, ends[1], &message, 0)));
    memcpy(&came, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof came);
    close(fd);
    use_connected(came);
    close(came);
    end_pair();
}

static void several(void) {
    int one = open_to('e'), other = make_unread(), file = memfd_create("file", 0), fds[5];
    begin_pair(SOCK_STREAM);
    begin("pass %s", result(pass(ends[0], (int[]){one, file, other, one, ends[1]}, 5)));
    finish(" took %d", take(ends[1], fds));
    say("file %s", result(write(fds[1], "content", 7)));
    use_connected(fds[0]);
    says_next("unread", fds[2], 6);
    use_connected(fds[3]);
    after_connected(one);
    for (int i = 0; i < 5; i++) close(fds[i]);
    close(one);
    close(other);
    close(file);
    end_pair();
}

static void with_little_room(void) {
    int one = open_to('e'), other = open_to('e');
    begin_pair(SOCK_STREAM);
    say("pass %s", result(pass(ends[0], (int[]){one, other}, 2)));
    /* The rest of a word is room for a second one. */
    struct taken taken = take_with(ends[1], CMSG_LEN(sizeof(int)), 0);
    say("took %d cut %d", taken.count, !!(taken.flags & MSG_CTRUNC));
    use_connected(taken.fds[0]);
    after_connected(other);
    close(taken.fds[0]);
    close(one);
    close(other);
    end_pair();
}

static void with_no_room(void) {
    int fd = open_to('e');
    char byte;
    begin_pair(SOCK_STREAM);
    say("pass %s", result(pass(ends[0], &fd, 1)));
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    begin("recvmsg %s", result(recvmsg(ends[1], &message, 0)));
    finish(" cut %d", !!(message.msg_flags & MSG_CTRUNC));
    pass(ends[0], &fd, 1);
    say("read %s", result(read(ends[1], &byte, 1)));
    after_connected(fd);
    close(fd);
    end_pair();
}

static void peeked(void) {
    int fd = open_to('e');
    begin_pair(SOCK_STREAM);
    pass(ends[0], &fd, 1);
    struct taken first = take_with(ends[1], ROOM, MSG_PEEK), second = take_with(ends[1], ROOM, 0);
    say("peeked %d took %d apart %d", first.count, second.count, first.fds[0] != second.fds[0]);
    close(fd);
    use_connected(first.fds[0]);
    close(first.fds[0]);
    use_connected(second.fds[0]);
    close(second.fds[0]);
    end_pair();
}

static void closed_on_exec(void) {
    int fd = open_to('e');
    begin_pair(SOCK_STREAM);
    pass(ends[0], &fd, 1);
    pass(ends[0], &fd, 1);
    struct taken one = take_with(ends[1], ROOM, 0), other = take_with(ends[1], ROOM, MSG_CMSG_CLOEXEC);
    say("flags %d %d", fcntl(one.fds[0], F_GETFD), fcntl(other.fds[0], F_GETFD));
    use_connected(other.fds[0]);
    close(one.fds[0]);
    close(other.fds[0]);
    close(fd);
    end_pair();
}

static void lost_unread(void) {
    int fd = at_gate();
    begin_pair(SOCK_STREAM);
    pass(ends[0], &fd, 1);
    pass(ends[0], &fd, 1);
    close(fd);
    end_pair();
    char how = '?';
    int opener = open_to('o');
    read(opener, &how, 1);
    say("the peer was %s", how == 'E' || how == 'R' ? "told" : "not told");
    close(opener);
}

static void held_by_message(void) {
    int fd = open_to('e'), came = -1;
    begin_pair(SOCK_STREAM);
    write(fd, "abc", 3);
    say("pass %s", result(pass(ends[0], &fd, 1)));
    close(fd);
    /* Nobody but the message has it. */
    say("took %d", take(ends[1], &came));
    says_next("unread", came, 3);
    use_connected(came);
    close(came);
    end_pair();
}

static void bad_number(void) {
    int fd = open_to('e'), came[2];
    begin_pair(SOCK_STREAM);
    begin("alone %s", result(pass(ends[0], (int[]){-1}, 1)));
    more(" closed %s", result(pass(ends[0], (int[]){900000}, 1)));
    finish(" beside %s", result(pass(ends[0], (int[]){fd, 900000}, 2)));
    use_connected(fd);
    begin("pass %s", result(pass(ends[0], &fd, 1)));
    finish(" took %d", take(ends[1], came));
    use_connected(came[0]);
    close(came[0]);
    close(fd);
    end_pair();
}

static void with_credentials(void) {
    int fd = open_to('e'), on = 1, kinds = 0, came = -1;
    char byte = 'c', room[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))] = "";
    begin_pair(SOCK_DGRAM);
    setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){CMSG_LEN(sizeof(struct ucred)), SOL_SOCKET, SCM_CREDENTIALS};
    struct ucred own = {getpid(), getuid(), getgid()};
    memcpy(CMSG_DATA(header), &own, sizeof own);
    header = CMSG_NXTHDR(&message, header);
    *header = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    say("pass %s", result(sendmsg(ends[0], &message, 0)));
    message.msg_controllen = sizeof room;
    say("took %s", result(recvmsg(ends[1], &message, 0)));
    for (header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        kinds |= header->cmsg_type;
        if (header->cmsg_type == SCM_RIGHTS) memcpy(&came, CMSG_DATA(header), sizeof came);
    }
    say("kinds %d", kinds);
    use_connected(came);
    close(came);
    close(fd);
    end_pair();
}

static void many_messages(void) {
    int fd = open_to('e'), fds[3];
    begin_pair(SOCK_DGRAM);
    char room[3][ROOM], bytes[3];
    struct iovec parts[3];
    struct mmsghdr messages[3];
    for (int i = 0; i < 3; i++) {
        pass(ends[0], &fd, 1);
        parts[i] = (struct iovec){&bytes[i], 1};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1, .msg_control = room[i],
                                              .msg_controllen = ROOM};
    }
    say("recvmmsg %s", result(recvmmsg(ends[1], messages, 3, 0, NULL)));
    close(fd);
    for (int i = 0; i < 3; i++) memcpy(&fds[i], CMSG_DATA(CMSG_FIRSTHDR(&messages[i].msg_hdr)), sizeof(int));
    for (int i = 0; i < 3; i++) {
        use_connected(fds[i]);
        close(fds[i]);
    }
    end_pair();
}

static void back_and_forth(void) {
    int fd = open_to('e');
    begin_pair(SOCK_STREAM);
    for (int turn = 0; turn < 5; turn++) {
        int came = -1;
        pass(ends[turn % 2], &fd, 1);
        close(fd);
        take(ends[1 - turn % 2], &came);
        fd = came;
    }
    use_connected(fd);
    close(fd);
    end_pair();
}

static void urgent(void) {
    char bytes[8] = "";
    int fd = open_to('u'), came = -1;
    begin_pair(SOCK_STREAM);
    poll_one(fd, POLLPRI, 10000);
    pass(ends[0], &fd, 1);
    close(fd);
    take(ends[1], &came);
    begin("polls %s", bits(poll_one(came, POLLPRI, 10000)));
    more(" oob %s", result(recv(came, bytes, 1, MSG_OOB)));
    more(" %s", bytes);
    more(" reads %s", result(recv(came, bytes, 8, 0)));
    finish(" %.3s", bytes);
    close(came);
    end_pair();
}

static void with_options(void) {
    int fd = open_to('e'), came = -1, idle = 77, on = 1;
    struct linger linger = {1, 3}, told = {0};
    struct timeval time = {5, 0}, told_time = {0};
    socklen_t len = sizeof told, time_len = sizeof told_time;
    begin_pair(SOCK_STREAM);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    pass(ends[0], &fd, 1);
    take(ends[1], &came);
    getsockopt(came, SOL_SOCKET, SO_LINGER, &told, &len);
    getsockopt(came, SOL_SOCKET, SO_SNDTIMEO, &told_time, &time_len);
    say("idle %d linger %d %d time %ld inline %d", int_option(came, IPPROTO_TCP, TCP_KEEPIDLE), told.l_onoff,
        told.l_linger, told_time.tv_sec, int_option(came, SOL_SOCKET, SO_OOBINLINE));
    idle = 99;
    setsockopt(came, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    say("told %d", int_option(fd, IPPROTO_TCP, TCP_KEEPIDLE));
    close(came);
    close(fd);
    end_pair();
}

static void in_a_set(void) {
    int fd = open_to('e'), came = -1, set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u64 = 7}};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    begin_pair(SOCK_STREAM);
    pass(ends[0], &fd, 1);
    take(ends[1], &came);
    write(came, "x", 1);
    use_set(set);
    say("change %s", result(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event)));
    say("remove %s", result(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL)));
    say("none %s", result(wait_one(set, 0)));
    close(set);
    close(came);
    close(fd);
    end_pair();
}

int main(int argc, char **argv) {
    const struct check checks[] = {
        {"over a stream", over_stream}, {"over datagrams", over_datagrams}, {"over packets", over_packets},
        {"over a named one", over_named}, {"by number", by_number}, {"several", several}, {"little room", with_little_room},
        {"no room", with_no_room}, {"peeked", peeked}, {"closed on exec", closed_on_exec},
        {"lost unread", lost_unread}, {"held by a message", held_by_message}, {"bad number", bad_number},
        {"credentials", with_credentials}, {"many messages", many_messages}, {"back and forth", back_and_forth},
        {"urgent", urgent}, {"options", with_options}, {"in a set", in_a_set},
    };
    int status = run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
    if (status) return status;
    each_thing("to a stranger", to_stranger);
    each_thing("to itself", to_itself);
    return 0;
}

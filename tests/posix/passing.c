/* What becomes of a connection of the engine that is passed to another process.
   Usage: passing PEER-ADDRESS PORT (of the program peer) */
#define _GNU_SOURCE
#include "probing.h"

static void passed(void) {
    int fd = open_to('e'), ends[2];
    char byte = 'a', room[8];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof fd)];
    } rights = {.header = {CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS}};
    memcpy(CMSG_DATA(&rights.header), &fd, sizeof fd);
    struct iovec part = {&byte, 1};
    struct msghdr plain = {.msg_iov = &part, .msg_iovlen = 1}, passing = plain;
    passing.msg_control = &rights;
    passing.msg_controllen = sizeof rights;
    struct mmsghdr several[3] = {{plain, 0}, {passing, 0}, {plain, 0}};
    say("alone %s", result(sendmsg(ends[0], &passing, 0)));
    say("among others %s", result(sendmmsg(ends[0], several, 3, 0)));
    say("first of several %s", result(sendmmsg(ends[0], several + 1, 2, 0)));
    begin("came %s", result(recv(ends[1], room, sizeof room, MSG_DONTWAIT)));
    finish(" then %s", result(recv(ends[1], room, sizeof room, MSG_DONTWAIT)));
    begin("goes on %s", result(write(fd, "x", 1)));
    finish(" %s", result(recv(fd, room, 1, 0)));
}

int main(int argc, char **argv) {
    const struct check checks[] = {{"passed", passed}};
    return run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
}

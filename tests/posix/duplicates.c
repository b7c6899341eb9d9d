/* Descriptor numbers of shared sockets: duplicates, numbers that are closed on exec and those that are not, numbers
   that a program is started with. Prints the same on kernel sockets and under the library.
   Usage: duplicates PEER-ADDRESS PORT (of peer) */
#define _GNU_SOURCE
#include "probing.h"
#include "sharing.h"
#include <sys/mman.h>

/* Becomes this program anew, which uses a thing under a number. */
static void becomes(const struct thing *thing, int fd) {
    struct held held;
    execv(own_path, held_arguments(&held, thing, fd));
    say("cannot: %s", strerrorname_np(errno));
}
static void becomes_user(int fd) { becomes(&things[0], fd); }

/* Only whether the number is open. */
static void becomes_looker(int fd) { becomes(NULL, fd); }

static void at_standard_numbers(int fd) {
    int saved = dup(1);
    for (int i = 0; i < 3; i++) dup2(fd, i);
    close(fd);
    char back[8] = "";
    ssize_t put = write(1, "abc", 3), got = recv(0, back, 3, MSG_WAITALL);
    dup2(saved, 1);
    say("child: %s %s %s", result(put), result(got), back);
    use_connected(2);
}
static void standard_numbers(void) {
    int fd = open_to('e');
    in_child(at_standard_numbers, fd);
    after_connected(fd);
    close(fd);
}

static void to_itself(int fd) {
    begin("dup2 %d", dup2(fd, fd) == fd);
    more(" dup3 %s", result(dup3(fd, fd, 0)));
    more(" of none %s", result(dup2(900000, fd)));
    more(" to none %s", result(dup2(fd, -1)));
    finish(" flags %s", result(dup3(fd, 60, 1)));
    use_connected(fd);
}
static void duplicated_to_itself(void) {
    int fd = open_to('e');
    in_child(to_itself, fd);
    to_itself(fd);
    close(fd);
}

static void to_numbers(int fd) {
    int low = fcntl(fd, F_DUPFD, 0), high = fcntl(fd, F_DUPFD, 300);
    begin("low %d high %d", low > 2 && low < 100, high);
    more(" too high %s", result(fcntl(fd, F_DUPFD, 1 << 30)));
    more(" below %s", result(fcntl(fd, F_DUPFD, -1)));
    finish(" flags %d", fcntl(fcntl(fd, F_DUPFD_CLOEXEC, 310), F_GETFD));
    close(fd);
    use_connected(high);
    close(high);
    use_connected(low);
}
static void duplicated_to_numbers(void) {
    int fd = open_to('e');
    in_child(to_numbers, fd);
    to_numbers(dup(fd));
    after_connected(fd);
    close(fd);
}

/* One connection takes the number of another. */
static void replaces(int fd) {
    int other = open_to('e');
    write(other, "other", 5);
    begin("dup2 %d", dup2(other, fd) == fd);
    finish(" close %s", result(close(other)));
    says_next("now", fd, 5);
}
static void replaced(void) {
    int fd = open_to('e');
    in_child(replaces, fd);
    after_connected(fd);
    replaces(fd);
    close(fd);
}

static void takes_file(int fd) {
    char bytes[8] = "";
    int file = memfd_create("file", 0);
    begin("dup2 %d", dup2(file, fd) == fd);
    more(" %s", result(write(fd, "content", 7)));
    lseek(file, 0, SEEK_SET);
    finish(" %s %s", result(read(file, bytes, 7)), bytes);
}
static void replaced_by_file(void) {
    int fd = open_to('e');
    in_child(takes_file, fd);
    after_connected(fd);
    takes_file(fd);
    close(fd);
}

static void duplicates_listener(int listener) {
    int copy = dup(listener);
    close(listener);
    use_listener(copy);
}
static void duplicated_listener(void) {
    int listener = make_listener();
    in_child(duplicates_listener, listener);
    use_listener(listener);
    close(listener);
}

static void closes_range(int fd) {
    begin("range %s", result(close_range(fd, fd + 3, 0)));
    finish(" then %s", result(write(fd, "x", 1)));
}
static void closes_from(int fd) {
    closefrom(3);
    say("then %s", result(write(fd, "x", 1)));
}
static void marks_range(int fd) {
    say("range %s", result(close_range(fd, fd, CLOSE_RANGE_CLOEXEC)));
    becomes_looker(fd);
}
static void closed_by_range(void) {
    int fd = open_to('e');
    in_child(closes_range, fd);
    in_child(closes_from, fd);
    in_child(marks_range, fd);
    after_connected(fd);
    close(fd);
}

/* Which numbers another program gets. */

static int by_socket_flag(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connect(fd, (struct sockaddr *)&peer, sizeof peer);
    write(fd, "e", 1);
    return fd;
}
static int by_fcntl(void) {
    int fd = open_to('e');
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}
static int flag_dropped(void) {
    int fd = by_socket_flag();
    fcntl(fd, F_SETFD, 0);
    return fd;
}
static int by_dup(void) {
    int fd = by_socket_flag(), copy = dup(fd);
    close(fd);
    return copy;
}
static int by_dup3(void) {
    int fd = open_to('e'), copy = dup3(fd, 70, O_CLOEXEC);
    close(fd);
    return copy;
}
static int by_dup2(void) {
    int fd = by_fcntl(), copy = dup2(fd, 71);
    close(fd);
    return copy;
}
static int by_dupfd(void) {
    int fd = open_to('e'), copy = fcntl(fd, F_DUPFD_CLOEXEC, 72);
    close(fd);
    return copy;
}
static int by_accept4(void) {
    int listener = make_listener();
    struct sockaddr_in own;
    socklen_t len = sizeof own;
    char greeting[5];
    getsockname(listener, (struct sockaddr *)&own, &len);
    beside = call_back(own.sin_port);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    recv(fd, greeting, 5, MSG_WAITALL);
    close(listener);
    return fd;
}
static int by_ioctl(void) {
    int fd = open_to('e');
    ioctl(fd, FIOCLEX);
    return fd;
}

static void set_on_exec(int fd) {
    fcntl(fd, F_SETFD, fcntl(fd, F_GETFD) ^ FD_CLOEXEC);
    becomes_user(fd);
}

static void each_flag(void) {
    const struct {
        const char *name;
        int (*make)(void);
    } ways[] = {
        {"on exec: SOCK_CLOEXEC", by_socket_flag}, {"on exec: F_SETFD", by_fcntl},
        {"on exec: flag dropped", flag_dropped}, {"on exec: dup", by_dup}, {"on exec: dup2", by_dup2},
        {"on exec: dup3", by_dup3}, {"on exec: F_DUPFD_CLOEXEC", by_dupfd},
        {"on exec: accept4", by_accept4}, {"on exec: FIOCLEX", by_ioctl},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        check = ways[i].name;
        beside = -1;
        int fd = ways[i].make();
        say("flag %d", fcntl(fd, F_GETFD));
        in_child(becomes_user, fd);
        in_child(set_on_exec, fd);
        say("flag %d", fcntl(fd, F_GETFD));
        after_connected(fd);
        close(fd);
        if (beside >= 0) close(beside);
    }
}

static int target;
static void becomes_at(int fd) {
    dup2(fd, target);
    if (fd != target) close(fd);
    becomes_user(target);
}
static void each_number(void) {
    static char name[64];
    const int numbers[] = {0, 2, 3, 9, 63, 255, 256, 700};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        target = numbers[i];
        snprintf(name, sizeof name, "exec at %d", target);
        check = name;
        int fd = open_to('e');
        in_child(becomes_at, fd);
        after_connected(fd);
        close(fd);
    }
}

static void becomes_by_number(int fd) {
    struct held held;
    syscall(SYS_execve, own_path, held_arguments(&held, &things[0], fd), environ);
}
static void executed_by_number(void) {
    int fd = open_to('e');
    in_child(becomes_by_number, fd);
    after_connected(fd);
    close(fd);
}

/* A spawned program, for which actions prepare numbers. */

static posix_spawn_file_actions_t actions;

static void spawned(const struct thing *thing, int fd) {
    struct held held;
    pid_t child;
    fflush(stdout);
    int failed = posix_spawnp(&child, own_path, &actions, NULL, held_arguments(&held, thing, fd), environ);
    if (failed) say("spawn %s", strerrorname_np(failed));
    else await(child);
    posix_spawn_file_actions_destroy(&actions);
}

static void spawned_onto_itself(void) {
    int fd = by_fcntl();
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, fd);
    spawned(&things[0], fd);
    after_connected(fd);
    close(fd);
}
static void spawned_over_steps(void) {
    int fd = by_fcntl();
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 80);
    posix_spawn_file_actions_adddup2(&actions, 80, 81);
    posix_spawn_file_actions_addclose(&actions, 80);
    spawned(&things[0], 81);
    after_connected(fd);
    close(fd);
}
static void spawned_without(void) {
    int fd = open_to('e');
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, fd);
    spawned(NULL, fd);
    after_connected(fd);
    close(fd);
}
static void spawned_with_file(void) {
    int fd = open_to('e');
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    spawned(NULL, fd);
    after_connected(fd);
    close(fd);
}
static void spawned_with_two(void) {
    int fd = open_to('e'), other = make_unread();
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 82);
    posix_spawn_file_actions_adddup2(&actions, other, 83);
    spawned(&things[3], 83);
    says_next("after", other, 3);
    after_connected(fd);
    close(fd);
    close(other);
}
static void spawned_as_standard(void) {
    int fd = open_to('e');
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    posix_spawn_file_actions_adddup2(&actions, fd, 2);
    spawned(&things[0], 0);
    after_connected(fd);
    close(fd);
}

/* What a shell does with a connection. */

static void shell(const char *format, int fd) {
    char command[128];
    snprintf(command, sizeof command, format, fd);
    fflush(stdout);
    int status = system(command);
    if (status) say("system %x", status);
}
static void redirected(void) {
    int fd = open_to('e');
    shell("echo by a shell >&%d", fd);
    says_next("echo", fd, 11);
    shell("exec 5>&%d; echo by another >&5", fd);
    says_next("echo", fd, 11);
    after_connected(fd);
    close(fd);
}
static void shell_as_standard(int fd) {
    dup2(fd, 1);
    close(fd);
    system("echo by a shell");
}
static void redirected_in_child(void) {
    int fd = open_to('e');
    in_child(shell_as_standard, fd);
    says_next("echo", fd, 11);
    after_connected(fd);
    close(fd);
}
static void piped_to(void) {
    char command[64];
    int fd = open_to('e');
    snprintf(command, sizeof command, "cat >&%d", fd);
    fflush(stdout);
    FILE *input = popen(command, "w");
    fputs("through a pipe", input);
    say("ends %d", pclose(input));
    says_next("echo", fd, 14);
    after_connected(fd);
    close(fd);
}
static void piped_from(void) {
    char command[64], line[64] = "";
    int fd = open_to('e');
    write(fd, "by the peer\n", 12);
    until_queued(fd, 12);
    snprintf(command, sizeof command, "head -n1 <&%d", fd);
    FILE *output = popen(command, "r");
    begin("line %d %.11s", fgets(line, sizeof line, output) != NULL, line);
    finish(" ends %d", pclose(output));
    after_connected(fd);
    close(fd);
}
static void not_for_shells(void) {
    int fd = by_fcntl();
    shell("echo none 2>/dev/null >&%d", fd);
    after_connected(fd);
    close(fd);
}

int main(int argc, char **argv) {
    if (runs_held(argc, argv)) return 0;
    const struct check checks[] = {
        {"standard numbers", standard_numbers}, {"dup to itself", duplicated_to_itself},
        {"dup to numbers", duplicated_to_numbers}, {"replaced", replaced}, {"by a file", replaced_by_file},
        {"listener", duplicated_listener}, {"ranges", closed_by_range},
        {"exec by number", executed_by_number}, {"spawn: onto itself", spawned_onto_itself}, {"spawn: steps", spawned_over_steps},
        {"spawn: without", spawned_without}, {"spawn: a file", spawned_with_file},
        {"spawn: two", spawned_with_two}, {"spawn: standard", spawned_as_standard},
        {"shell: redirected", redirected}, {"shell: in a child", redirected_in_child},
        {"shell: pipe to", piped_to}, {"shell: pipe from", piped_from}, {"shell: without", not_for_shells},
    };
    int status = run_checks(argc, argv, checks, sizeof checks / sizeof *checks);
    if (status) return status;
    each_flag();
    each_number();
    return 0;
}

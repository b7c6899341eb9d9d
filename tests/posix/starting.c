/* Sockets in every state in children that are started in every way. Prints the same on kernel sockets and under
   the library. Usage: starting PEER-ADDRESS PORT (of peer) */
#define _GNU_SOURCE
#include "probing.h"
#include "sharing.h"

static void by_fork(const struct thing *thing, int fd) { in_child(thing->use, fd); }

static void by_clone(const struct thing *thing, int fd) {
    fflush(stdout);
    pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        thing->use(fd);
        _exit(0);
    }
    await(child);
}

/* As a daemon: whoever made the child has ended. */
static void by_grandchild(const struct thing *thing, int fd) {
    int over[2];
    char byte;
    pipe(over);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (fork() > 0) _exit(0);
        thing->use(fd);
        _exit(0);
    }
    close(over[1]);
    await(child);
    read(over[0], &byte, 1);
    close(over[0]);
}

static void becomes(const struct thing *thing, int fd) {
    struct held held;
    execve(own_path, held_arguments(&held, thing, fd), environ);
    say("cannot: %s", strerrorname_np(errno));
    _exit(1);
}

static void by_exec(const struct thing *thing, int fd) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) becomes(thing, fd);
    await(child);
}

static void by_vfork(const struct thing *thing, int fd) {
    struct held held;
    char **arguments = held_arguments(&held, thing, fd);
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        execv(own_path, arguments);
        _exit(1);
    }
    await(child);
}

static void by_spawn(const struct thing *thing, int fd) {
    struct held held;
    pid_t child;
    fflush(stdout);
    int failed = posix_spawn(&child, own_path, NULL, NULL, held_arguments(&held, thing, fd), environ);
    if (failed) say("spawn: %s", strerrorname_np(failed));
    else await(child);
}

/* Under another number, which nothing but the actions tells. */
static void by_spawn_at(const struct thing *thing, int fd) {
    struct held held;
    pid_t child;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 50);
    fflush(stdout);
    char **arguments = held_arguments(&held, thing, 50);
    int failed = posix_spawn(&child, own_path, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) say("spawn: %s", strerrorname_np(failed));
    else await(child);
}

static void command_for(const struct thing *thing, int fd, char *command, size_t room) {
    struct held held;
    char **arguments = held_arguments(&held, thing, fd);
    size_t at = 0;
    for (int i = 0; arguments[i]; i++) at += snprintf(command + at, room - at, "'%s' ", arguments[i]);
}

static void by_system(const struct thing *thing, int fd) {
    char command[1024];
    command_for(thing, fd, command, sizeof command);
    fflush(stdout);
    int status = system(command);
    if (status) say("system: %x", status);
}

static void by_popen(const struct thing *thing, int fd) {
    char command[1024], line[256];
    command_for(thing, fd, command, sizeof command);
    fflush(stdout);
    FILE *output = popen(command, "r");
    while (output && fgets(line, sizeof line, output)) fputs(line, stdout);
    int status = output ? pclose(output) : -1;
    if (status) say("popen: %x", status);
}

int main(int argc, char **argv) {
    if (runs_held(argc, argv)) return 0;
    const struct {
        const char *name;
        void (*hand)(const struct thing *, int);
    } ways[] = {
        {"fork", by_fork}, {"clone", by_clone}, {"grandchild", by_grandchild}, {"exec", by_exec},
        {"vfork", by_vfork}, {"spawn", by_spawn}, {"spawn at", by_spawn_at}, {"system", by_system},
        {"popen", by_popen},
    };
    if (run_checks(argc, argv, NULL, 0)) return 2;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) each_thing(ways[i].name, ways[i].hand);
    return 0;
}

/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * early: allocates from constructors of every priority, from a destructor, from an atexit handler, and forks in a
 * constructor. Built as PIE, as non-PIE and static. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char *kept[3];
__attribute__((constructor(101))) static void first(void)
{
    kept[0] = strdup("first");
    pid_t pid = fork();
    if (!pid) {
        free(malloc(1000));
        _exit(3);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 3) abort();
}
__attribute__((constructor(65000))) static void last(void) { kept[1] = strdup("last"); }
__attribute__((destructor)) static void end(void)
{
    free(kept[0]);
    free(kept[2]);
    free(malloc(50));
}
static void at_exit(void)
{
    free(kept[1]);
    kept[2] = malloc(77);
}

int main(void)
{
    atexit(at_exit);
    puts(!strcmp(kept[0], "first") && !strcmp(kept[1], "last") ? "ok" : "failed");
    return 0;
}

/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * surroundings WHAT: the heap while the process's surroundings change or lack something. Threads allocate, check and
 * free all the time; meanwhile the main thread does WHAT:
 *   affinity   moves every thread from CPU to CPU
 *   thp=0|1    with transparent huge pages allowed or not, and pages that are advised to be huge
 *   exec       replaces the program (by `surroundings after`) while they run
 *   hidden     covers /proc and /sys, then replaces the program: the heap starts without them (77: not permitted)
 *   after      nothing
 *   order      (one thread) prints how many of 1000 neighbours in time are neighbours in memory, and whether freed
 *              memory still holds what was in it */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#define THREADS 4
#define BLOCKS 300
static atomic_int done;
static atomic_ulong rounds;

static void *churn(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument * 7919 + 1;
    unsigned char *blocks[BLOCKS] = {0};
    size_t sizes[BLOCKS] = {0};
    while (!done) {
        for (int i = 0; i < BLOCKS; i++) {
            seed = seed * 1103515245 + 12345;
            int at = seed / 65536 % BLOCKS;
            for (size_t k = 0; k < sizes[at]; k += 97)
                if (blocks[at][k] != (unsigned char)at) abort();
            free(blocks[at]);
            sizes[at] = seed / 256 % 100 == 0 ? 3 << 20 : seed / 65536 % 3000 + 1;
            blocks[at] = malloc(sizes[at]);
            if (!blocks[at]) abort();
            memset(blocks[at], at, sizes[at]);
        }
        rounds++;
    }
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    return NULL;
}

static void order(void)
{
    uintptr_t last = 0;
    int near = 0;
    for (int i = 0; i < 1000; i++) {
        char *block = malloc(100);
        uintptr_t now = (uintptr_t)block;
        near += now > last && now - last < 256;
        last = now;
    }
    char *volatile block = malloc(3000);
    memset(block, 0x5a, 3000);
    free(block);
    int kept = 0;
    for (int i = 64; i < 2900; i++) kept += block[i] == 0x5a;
    printf("ok %d %d\n", near, kept);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "after";
    if (!strcmp(what, "order")) {
        order();
        return 0;
    }
    if (getenv("FASTPATH_EXPECTED")) {
        char line[512];
        int found = 0;
        FILE *maps = fopen("/proc/self/maps", "r");
        while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, "libfastpath") != NULL;
        if (maps && !found) return 1;
        if (maps) fclose(maps);
    }
    if (!strncmp(what, "thp=", 4) && prctl(PR_SET_THP_DISABLE, what[4] == '0', 0, 0, 0)) return 2;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, churn, (void *)(uintptr_t)(i + 1));
    while (rounds < 20) usleep(1000);
    if (!strcmp(what, "affinity")) {
        cpu_set_t all, one;
        sched_getaffinity(0, sizeof all, &all);
        for (int turn = 0; turn < 400; turn++) {
            int cpu = turn % CPU_SETSIZE;
            while (!CPU_ISSET(cpu, &all)) cpu = (cpu + 1) % CPU_SETSIZE;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            for (int i = 0; i < THREADS; i++) pthread_setaffinity_np(threads[(i + turn) % THREADS], sizeof one, i % 2 ? &one : &all);
            free(malloc(turn));
            usleep(300);
        }
    } else if (!strncmp(what, "thp=", 4)) {
        for (int i = 0; i < 20; i++) {
            size_t size = 8 << 20;
            char *large = aligned_alloc(2 << 20, size);
            if (!large) abort();
            madvise(large, size, MADV_HUGEPAGE);
            memset(large, i, size);
            if (large[size - 1] != (char)i) abort();
            free(large);
        }
    } else if (!strcmp(what, "exec")) {
        execl("/proc/self/exe", argv[0], "after", (char *)NULL);
        return 3;
    } else if (!strcmp(what, "hidden")) {
        char path[4096];
        ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
        if (length < 0) return 4;
        path[length] = 0;
        done = 1;
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("none", "/sys", "tmpfs", 0, NULL) || mount("none", "/proc", "tmpfs", 0, NULL)) {
            return 77;
        }
        execl(path, argv[0], "after", (char *)NULL);
        return 5;
    }
    unsigned long before = rounds;
    while (rounds < before + 20) usleep(1000);
    done = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    puts("ok");
    return 0;
}

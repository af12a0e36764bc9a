/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A known workload for the heap profile: three places allocate known amounts, and some of it is freed. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/time.h>

#define SMALL 400000
static void *blocks[SMALL];

__attribute__((noinline)) void *site_small(size_t size)
{
    void *block = malloc(size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

__attribute__((noinline)) void *site_large(size_t size)
{
    void *block = malloc(size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

__attribute__((noinline)) void site_free(void *block)
{
    free(block);
    __asm__ volatile("");
}

__attribute__((noinline)) void site_again(void *block)
{
    free(block);
    __asm__ volatile("");
}

__attribute__((noinline)) void *site_growing(size_t steps)
{
    char *block = malloc(4096);
    for (size_t i = 1; i <= steps; i++)
        block = realloc(block, i * 1000000);
    __asm__ volatile("" : "+r"(block));
    return block;
}

static void *last;

__attribute__((noinline)) void recurse(int depth)
{
    if (depth)
        recurse(depth - 1);
    else
        site_small(100);
    __asm__ volatile("");
}

static void handler(int signal)
{
    (void)signal;
    free(malloc(333));
}

static void *thread(void *arg)
{
    for (int i = 0; i < 100000; i++)
        free(site_small(40 + i % 200));
    return arg;
}

/* Enough bytes for so many samples at the default interval that a twentieth is six standard deviations, hardly any of it
 * touched. */
static void plenty(void)
{
    size_t small = 0, large = 0, live = 0;
    for (unsigned i = 0; i < 3000000; i++) {
        size_t size = i % 64 == 0 ? 0 : 16 + i * 7919UL % 9000;
        free(site_small(size));
        small += size;
    }
    /* Half of them stay. */
    for (unsigned i = 0; i < 700000; i++) {
        size_t size = 10000 + i * 104729UL % 22000;
        void *block = site_large(size);
        large += size;
        if (i % 2)
            live += size;
        else if (i % 4)
            free(block);
        else
            free(realloc(block, size));
    }
    printf("site_small %zu 0\nsite_large %zu %zu\n", small, large, live);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "leaks")) {
        for (int i = 0; i < 25; i++)
            site_small(1000);
        last = site_large(70000);
        free(site_large(50));
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "storm")) {
        struct itimerval often = {{0, 300}, {0, 300}};
        signal(SIGALRM, handler);
        setitimer(ITIMER_REAL, &often, 0);
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], 0, thread, 0);
        for (int i = 0; i < 200; i++)
            recurse(i % 100);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], 0);
        puts("ok");
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "twice")) {
        last = site_small(100);
        site_free(last);
        site_again(last);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "beyond")) {
        last = site_large(100);
        ((char *volatile)last)[100] = 1;
        site_free(last);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "late")) {
        last = site_large(100);
        site_free(last);
        ((char *volatile)last)[10] = 1;
        for (int i = 0; i < 5000; i++)
            site_small(100);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "plenty")) {
        plenty();
        return 0;
    }
    size_t total = 0, live = 0, large = 0, large_live = 0;
    for (int i = 0; i < SMALL; i++) {
        size_t size = 16 + i * 7919UL % 500;
        blocks[i] = site_small(size);
        total += size;
        live += size;
    }
    for (int i = 0; i < SMALL; i += 2) {
        live -= 16 + i * 7919UL % 500;
        free(blocks[i]);
    }
    for (int i = 0; i < 3000; i++) {
        size_t size = 1000 + i * 104729UL % 100000;
        void *block = site_large(size);
        large += size;
        if (i % 3)
            free(block);
        else
            large_live += size;
    }
    last = site_growing(40);
    printf("site_small %zu %zu\nsite_large %zu %zu\nsite_growing 0 %d\n", total, live, large, large_live, 40 * 1000000);
    fflush(stdout);
    if (argc > 1 && !strcmp(argv[1], "signal")) {
        raise(atoi(argv[2]));
        _exit(0);
    }
    return 0;
}

/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * memory WHAT: how much memory and how many mappings a workload leaves. Prints "name value" lines. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static long field(const char *name)
{
    char line[256];
    long kb = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) kb = atol(line + strlen(name) + 1);
    if (file) fclose(file);
    return kb;
}

static long mappings(void)
{
    long lines = 0;
    int c;
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && (c = getc(file)) != EOF) lines += c == '\n';
    if (file) fclose(file);
    return lines;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* 200 MB of 1 KiB blocks, freed; then nothing is called any more. */
static void small_freed(void)
{
    size_t n = 200 << 10;
    void **blocks = mmap(NULL, n * sizeof *blocks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < n; i++) memset(blocks[i] = malloc(1024), 1, 1024);
    long full = field("VmRSS:");
    for (size_t i = 0; i < n; i++) free(blocks[i]);
    munmap(blocks, n * sizeof *blocks);
    long at_once = field("VmRSS:");
    malloc_trim(0);
    printf("full-kb %ld\nfreed-kb %ld\ntrimmed-kb %ld\nmappings %ld\n", full, at_once, field("VmRSS:"), mappings());
}

/* A block grown to 1 GiB in steps of 1 MiB, every step touched a little. */
static void grow(void)
{
    double start = now();
    char *p = NULL;
    for (size_t mb = 1; mb <= 1024; mb++) {
        p = realloc(p, mb << 20);
        if (!p) abort();
        p[(mb << 20) - 1] = (char)mb;
        p[(mb - 1) << 20] = (char)mb;
    }
    for (size_t mb = 1; mb <= 1024; mb++)
        if (p[(mb << 20) - 1] != (char)mb || p[(mb - 1) << 20] != (char)mb) abort();
    double up = now() - start;
    free(p);
    start = now();
    p = NULL;
    for (size_t size = 64; size <= 8 << 20; size += 64) {
        p = realloc(p, size);
        p[size - 1] = 1;
    }
    free(p);
    printf("grow-seconds %.4f\nsmall-steps-seconds %.4f\npeak-kb %ld\nmappings %ld\n", up, now() - start, field("VmHWM:"),
           mappings());
}

/* 15 of 16 blocks of 600 bytes freed, and 200 live blocks of 1 MB: how many mappings. */
static void fragments(void)
{
    size_t n = 400000;
    void **blocks = malloc(n * sizeof *blocks);
    for (size_t i = 0; i < n; i++) memset(blocks[i] = malloc(600), 1, 600);
    for (size_t i = 0; i < n; i++)
        if (i % 16) free(blocks[i]);
    for (int i = 0; i < 200; i++) memset(malloc(1 << 20), 1, 1 << 20);
    malloc_trim(0);
    printf("mappings %ld\nrss-kb %ld\n", mappings(), field("VmRSS:"));
}

/* Blocks of 5 to 25 MiB, 20 of them live, all touched. */
static void large(void)
{
    char *live[20] = {0};
    uint64_t state = 1;
    double start = now();
    for (int i = 0; i < 600; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t size = (5 << 20) + (state >> 33) % (20 << 20);
        int at = (state >> 20) % 20;
        free(live[at]);
        live[at] = malloc(size);
        for (size_t k = 0; k < size; k += 4096) live[at][k] = 1;
    }
    printf("large-seconds %.4f\npeak-kb %ld\n", now() - start, field("VmHWM:"));
}

/* One thread allocates, another only frees. */
#define RING 1024
static _Atomic(void *) ring[RING];
static void *consumer(void *count)
{
    for (long i = 0; i < (long)count; i++) {
        void *block;
        while (!(block = atomic_exchange(&ring[i % RING], NULL))) sched_yield();
        free(block);
    }
    return NULL;
}

static void one_way(void)
{
    long count = 300000;
    pthread_t thread;
    pthread_create(&thread, NULL, consumer, (void *)count);
    for (long i = 0; i < count; i++) {
        void *block = malloc(1000), *none = NULL;
        memset(block, 1, 1000);
        while (!atomic_compare_exchange_weak(&ring[i % RING], &none, block)) {
            none = NULL;
            sched_yield();
        }
    }
    pthread_join(thread, NULL);
    printf("peak-kb %ld\n", field("VmHWM:"));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "hello";
    if (!strcmp(what, "small")) small_freed();
    else if (!strcmp(what, "grow")) grow();
    else if (!strcmp(what, "fragments")) fragments();
    else if (!strcmp(what, "large")) large();
    else if (!strcmp(what, "one-way")) one_way();
    else printf("rss-kb %ld\nvirtual-kb %ld\nmappings %ld\n", field("VmRSS:"), field("VmSize:"), mappings());
    return 0;
}

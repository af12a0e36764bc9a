// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0
// The loops of the worker's `pairs` and `batch` for a C program, on whatever library is preloaded. It allocates nothing
// else, so that it also runs on the empty library. `pair PERCENT` prints one line of JSON; `pair hello` prints what a
// small process costs; `pair count LOOPS SIZE BATCH THREADS` is for counting instructions.
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN 10000
#define BATCH 10000

static char text[1 << 14];
static size_t length;

static void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(text + length, sizeof text - length, format, arguments);
    va_end(arguments);
}

static inline uint64_t ticks(void) {
#ifdef __x86_64__
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
#else
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
#endif
}

static double median(double *values, int count) {
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && values[j - 1] > values[j]; j--) {
            double swap = values[j];
            values[j] = values[j - 1];
            values[j - 1] = swap;
        }
    return values[count / 2];
}

static const char *comma = "";
static void part(const char *name, size_t size, double *values, int count) {
    say("%s\"%s/%zu\":%.4f", comma, name, size, median(values, count));
    comma = ",";
}

static void pairs(int percent) {
    static double values[60];
    int runs = 60 * percent / 100 < 5 ? 5 : 60 * percent / 100;
    for (size_t size = 8; size <= 1024; size *= 2) {
        for (int run = 0; run < runs; run++) {
            uint64_t start = ticks();
            for (int i = 0; i < RUN; i++) {
                void *block = malloc(size);
                __asm__ volatile("" : "+r"(block) : : "memory");
                free(block);
            }
            values[run] = (double)(ticks() - start) / RUN;
        }
        part("pair", size, values, runs);
    }
}

static void batch(int percent) {
    static char *blocks[BATCH];
    static double allocs[24], frees[24], sums[24];
    for (size_t size = 8; size <= 16384; size *= 2) {
        int runs = (size <= 1024 ? 24 : 8) * percent / 100;
        if (runs < 3)
            runs = 3;
        for (int run = -2; run < runs; run++) {
            uint64_t start = ticks();
            for (int i = 0; i < BATCH; i++) {
                char *block = malloc(size);
                *(volatile char *)block = 22;
                blocks[i] = block;
            }
            uint64_t middle = ticks();
            for (int i = 0; i < BATCH; i++) {
                *(volatile char *)blocks[i] = 23;
                free(blocks[i]);
            }
            uint64_t end = ticks();
            if (run >= 0) {
                allocs[run] = (double)(middle - start) / BATCH;
                frees[run] = (double)(end - middle) / BATCH;
                sums[run] = (double)(end - start) / BATCH;
            }
        }
        part("batch", size, sums, runs);
        part("batch-alloc", size, allocs, runs);
        part("batch-free", size, frees, runs);
    }
}

// A line of /proc/self/status, in KiB.
static long status(const char *key) {
    static char page[4096];
    int file = open("/proc/self/status", O_RDONLY);
    ssize_t count = read(file, page, sizeof page - 1);
    close(file);
    page[count > 0 ? count : 0] = 0;
    char *line = strstr(page, key);
    return line ? atol(line + strlen(key) + 1) : 0;
}

// One of many threads that use the allocator once and then wait.
static pthread_barrier_t ready, done;
static void *idle(void *nothing) {
    for (size_t size = 8; size <= 1024; size += 8)
        free(malloc(size));
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&done);
    return nothing;
}

// What callgrind collects: LOOPS times BATCH allocations, then as many frees.
__attribute__((noinline)) void measured(int loops, size_t size, int batch, char **blocks) {
    for (int loop = 0; loop < loops; loop++) {
        for (int i = 0; i < batch; i++)
            blocks[i] = malloc(size);
        for (int i = 0; i < batch; i++)
            free(blocks[i]);
    }
}

static void count(int loops, size_t size, int batch, int threads) {
    static char *blocks[BATCH];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    pthread_barrier_init(&ready, NULL, threads + 1);
    pthread_barrier_init(&done, NULL, threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, idle, NULL) != 0) {
            say("no thread %d\n", i);
            write(1, text, length);
            _exit(3);
        }
    }
    pthread_barrier_wait(&ready);
    measured(3, size, batch, blocks); // warm
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 20; i++) {
        uint64_t start = ticks();
        for (int j = 0; j < loops; j++)
            measured(1, size, batch, blocks);
        uint64_t spent = ticks() - start;
        if (spent < best)
            best = spent;
    }
    say("{\"ticks\":%.3f,\"rss_kib\":%ld}\n", (double)best / loops / batch, status("VmRSS:"));
}

int main(int arguments, char **argument) {
    if (arguments >= 2 && strcmp(argument[1], "hello") == 0) {
        free(malloc(1000));
        say("{\"rss_kib\":%ld,\"virtual_kib\":%ld}\n", status("VmRSS:"), status("VmSize:"));
    } else if (arguments >= 6 && strcmp(argument[1], "count") == 0) {
        count(atoi(argument[2]), atol(argument[3]), atoi(argument[4]), atoi(argument[5]));
        write(1, text, length);
        _exit(0); // the waiting threads go with it
    } else if (arguments >= 2 && atoi(argument[1]) > 0) {
        say("{\"parts\":{");
        pairs(atoi(argument[1]));
        if (arguments == 2) // the empty library gives one block to everybody: pairs only
            batch(atoi(argument[1]));
        say("}}\n");
    } else {
        say("usage: pair PERCENT [pairs] | pair hello | pair count LOOPS SIZE BATCH THREADS\n");
    }
    return write(1, text, length) == (ssize_t)length ? 0 : 1;
}

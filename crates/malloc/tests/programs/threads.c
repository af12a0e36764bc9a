/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * threads N: N short threads, many at a time, that allocate in their body and in a key's destructor; the blocks of one
 * are freed by the next. Then 200 live threads with nothing to do: prints the resident memory each adds after it used
 * all small sizes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_key_t key;
static _Atomic(void *) left;
static pthread_barrier_t used, measured;

static void destructor(void *value)
{
    free(value);
    void *more = malloc(300);
    memset(more, 1, 300);
    free(more);
}

static void *brief(void *unused)
{
    (void)unused;
    pthread_setspecific(key, malloc(100));
    for (size_t size = 1; size < 5000; size += size / 3 + 1) {
        void *block = malloc(size);
        memset(block, 2, size);
        free(atomic_exchange(&left, block));
    }
    return NULL;
}

static void *idle(void *touch)
{
    if (touch)
        for (size_t size = 8; size <= 7500; size += 8) {
            void *block = malloc(size);
            *(volatile char *)block = 1;
            free(block);
        }
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&measured);
    return NULL;
}

static long resident(void)
{
    char line[256];
    long kb = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1) break;
    if (file) fclose(file);
    return kb;
}

#define IDLE 200
static double idle_threads(int touch)
{
    pthread_t ids[IDLE];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    pthread_barrier_init(&used, NULL, IDLE + 1);
    pthread_barrier_init(&measured, NULL, IDLE + 1);
    long before = resident();
    for (int i = 0; i < IDLE; i++)
        if (pthread_create(&ids[i], &attributes, idle, touch ? &ids : NULL)) abort();
    pthread_barrier_wait(&used);
    long after = resident();
    pthread_barrier_wait(&measured);
    for (int i = 0; i < IDLE; i++) pthread_join(ids[i], NULL);
    return (double)(after - before) / IDLE;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 10000;
    pthread_key_create(&key, destructor);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    pthread_t ids[64];
    for (int i = 0; i < count; i += 64) {
        for (int t = 0; t < 64; t++)
            if (pthread_create(&ids[t], &attributes, brief, NULL)) abort();
        for (int t = 0; t < 64; t++) pthread_join(ids[t], NULL);
    }
    free(atomic_exchange(&left, NULL));
    idle_threads(1);
    /* The kernel counts resident pages in batches per CPU: what a thread really costs shows in every round, what is off
     * by a batch does not. */
    double bare = 0, touched = 1e9;
    for (int round = 0; round < 5; round++) {
        double without = idle_threads(0), with = idle_threads(1);
        if (with - without < touched - bare) {
            bare = without;
            touched = with;
        }
    }
    printf("ok idle-thread-kb %.2f bare %.2f\n", touched, bare);
    return 0;
}

/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * flat CPUS...: for each number, that many threads, each kept on a CPU of its own, allocate and free; prints the
 * nanoseconds of all of them together per operation. In an emulator that counts an instruction of any CPU as a nanosecond
 * these are instructions. Fails if the last number's are more than a twentieth above the first one's. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 64, PAIRS = 20000, ROUNDS = 40, BATCH = 500, SIZE = 64, TURNS = 5 };

static pthread_barrier_t start, end;
static int batched;

static void *work(void *cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((int)(long)cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one)) abort();
    void *blocks[BATCH];
    for (int turn = 0; turn < TURNS; turn++) {
        pthread_barrier_wait(&start);
        if (batched)
            for (int round = 0; round < ROUNDS; round++) {
                for (int i = 0; i < BATCH; i++) blocks[i] = malloc(SIZE);
                for (int i = 0; i < BATCH; i++) free(blocks[i]);
            }
        else
            for (int i = 0; i < PAIRS; i++) {
                void *block = malloc(SIZE);
                __asm__ volatile("" : "+r"(block) : : "memory");
                free(block);
            }
        pthread_barrier_wait(&end);
    }
    return NULL;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

/* The least of all turns: interrupts only add. */
static double measured(int threads)
{
    pthread_t ids[MOST];
    double least = 1e18;
    pthread_barrier_init(&start, NULL, threads + 1);
    pthread_barrier_init(&end, NULL, threads + 1);
    for (long i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, work, (void *)i)) abort();
    for (int turn = 0; turn < TURNS; turn++) {
        double from = now();
        pthread_barrier_wait(&start);
        pthread_barrier_wait(&end);
        double took = (now() - from) / threads / (batched ? ROUNDS * BATCH : PAIRS);
        if (turn && took < least) least = took;
    }
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    return least;
}

int main(int count, char **arguments)
{
    int status = 0;
    for (batched = 0; batched < 2; batched++) {
        double first = 0, last = 0;
        printf("FLAT %s:", batched ? "500 allocated, then 500 freed" : "pair");
        for (int i = 1; i < count; i++) {
            int threads = atoi(arguments[i]);
            if (threads < 1 || threads > MOST) return 2;
            last = measured(threads);
            if (i == 1) first = last;
            printf(" %d CPUs %.2f", threads, last);
        }
        printf("\n");
        status |= last > first * 1.05;
    }
    puts(status ? "not flat" : "flat");
    return status;
}

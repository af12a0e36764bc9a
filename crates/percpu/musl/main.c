/* SPDX-FileCopyrightText: The fastpath developers */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Many short detached threads, each of which registers its own rseq area at its first use and must unregister before its
   stack is unmapped: without that the kernel writes to unmapped memory and the process dies. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void hits_add(void);
long hits_sum(void);
long hits_outside(void);
int hits_own(void);

/* The precompiled core names it; nothing unwinds here. */
void rust_eh_personality(void) { abort(); }

/* A static program has what it names: without these the library finds no way to act at thread exit, and counts with locked
   operations instead. */
int (*const keep_create)(pthread_key_t *, void (*)(void *)) = pthread_key_create;
int (*const keep_set)(pthread_key_t, const void *) = pthread_setspecific;

static void *count(void *unused) {
    (void)unused;
    hits_add();
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 60000;
    pthread_attr_t attr;
    printf("own registration: %d\n", hits_own());
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        while (pthread_create(&thread, &attr, count, NULL) != 0)
            usleep(1000);
        /* A bounded number of threads at a time. */
        while (i - hits_sum() > 50)
            usleep(50);
    }
    while (hits_sum() < threads)
        usleep(1000);
    usleep(50000);
    printf("counted %ld of %d, %ld outside\n", hits_sum(), threads, hits_outside());
    return !(hits_sum() == threads && (!hits_own() || hits_outside() == 0));
}

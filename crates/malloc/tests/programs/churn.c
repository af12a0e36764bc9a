/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * churn THREADS OPERATIONS [signals[=USEC]] [forks=N]: threads allocate, resize and free blocks of all sizes, through every
 * entry point, and hand them to each other. Every block carries a pattern that is checked before it changes hands or
 * goes away. With `signals` a timer interrupts the process every 200 us (or USEC) and the handler allocates too; with `forks=N`
 * the main thread forks N times meanwhile and every child must allocate and free, and end. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* musl has no such function, so neither has a static program on it that does not link ours. */
extern int malloc_trim(size_t) __attribute__((weak));

struct block {
    unsigned char *data;
    size_t size;
    unsigned char pattern;
};

#define SHARED 512
#define OWN 256
static _Atomic(struct block *) shared[SHARED];
static long operations;
static atomic_ulong handled;
static atomic_int done;

static void fail(const char *what)
{
    (void)!write(2, what, strlen(what));
    (void)!write(2, "\n", 1);
    abort();
}

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static size_t random_size(uint64_t *state)
{
    uint64_t kind = next(state) % 100;
    if (kind < 70) return next(state) % 512;
    if (kind < 90) return next(state) % 8192;
    if (kind < 98) return next(state) % 65536;
    return next(state) % (2 << 20);
}

static void fill(struct block *b)
{
    /* Ends and a stride: enough to see any overlap, and cheap for large blocks. */
    for (size_t at = 0; at < b->size; at += at < 64 ? 1 : 61) b->data[at] = b->pattern;
    if (b->size) b->data[b->size - 1] = b->pattern;
}

static void check(const struct block *b, size_t size)
{
    for (size_t at = 0; at < size; at += at < 64 ? 1 : 61)
        if (b->data[at] != b->pattern) fail("a block changed under its owner");
    if (size && size == b->size && b->data[size - 1] != b->pattern) fail("a block's end changed under its owner");
}

static struct block *make(uint64_t *state)
{
    struct block *b = malloc(sizeof *b);
    if (!b) fail("no memory for a record");
    b->size = random_size(state);
    b->pattern = (unsigned char)next(state);
    size_t align = 16;
    switch (next(state) % 6) {
    case 0:
        b->data = calloc(1, b->size);
        for (size_t at = 0; b->data && at < b->size; at += at < 64 ? 1 : 61)
            if (b->data[at]) fail("calloc returned memory that is not zero");
        break;
    case 1:
        align = (size_t)16 << next(state) % 10;
        b->data = aligned_alloc(align, b->size);
        break;
    case 2: {
        void *out = NULL;
        align = (size_t)8 << next(state) % 12;
        if (posix_memalign(&out, align, b->size)) out = NULL;
        b->data = out;
        break;
    }
    default:
        b->data = malloc(b->size);
    }
    if (!b->data) fail("no memory for a block");
    if ((uintptr_t)b->data % (align < 16 ? 16 : align)) fail("a block is not aligned");
    if (malloc_usable_size(b->data) < b->size) fail("a block is smaller than asked for");
    fill(b);
    return b;
}

static void resize(struct block *b, uint64_t *state)
{
    size_t size = random_size(state) + 1, keep = size < b->size ? size : b->size;
    check(b, b->size);
    unsigned char *moved = realloc(b->data, size);
    if (!moved) fail("realloc found no memory");
    b->data = moved;
    struct block seen = *b;
    seen.size = keep == b->size ? keep : keep + 1;
    check(&seen, keep);
    b->size = size;
    fill(b);
}

static void drop(struct block *b)
{
    check(b, b->size);
    errno = 77;
    free(b->data);
    if (errno != 77) fail("free changed errno");
    free(b);
}

static void handler(int signal)
{
    (void)signal;
    int saved = errno;
    static const size_t sizes[] = {24, 64, 100, 600, 3000, 40000};
    void *blocks[6];
    for (int i = 0; i < 6; i++) {
        blocks[i] = malloc(sizes[i]);
        if (!blocks[i]) fail("malloc in a handler found no memory");
        memset(blocks[i], 0xa5, sizes[i]);
    }
    for (int i = 0; i < 6; i++) {
        for (size_t at = 0; at < sizes[i]; at++)
            if (((unsigned char *)blocks[i])[at] != 0xa5) fail("a handler's block changed");
        free(blocks[i]);
    }
    atomic_fetch_add(&handled, 1);
    errno = saved;
}

static void *work(void *seed)
{
    uint64_t state = 0x9e3779b97f4a7c15u * ((uintptr_t)seed + 1);
    struct block *own[OWN] = {0};
    for (long i = 0; i < operations; i++) {
        size_t at = next(&state) % OWN;
        uint64_t what = next(&state) % 100;
        if (!own[at]) {
            own[at] = make(&state);
        } else if (what < 40) {
            drop(own[at]);
            own[at] = NULL;
        } else if (what < 60) {
            resize(own[at], &state);
        } else if (what < 99) {
            own[at] = atomic_exchange(&shared[next(&state) % SHARED], own[at]);
            if (own[at]) check(own[at], own[at]->size);
        } else if (malloc_trim && next(&state) % 200 == 0) {
            malloc_trim(0);
        }
    }
    for (size_t at = 0; at < OWN; at++)
        if (own[at]) drop(own[at]);
    return NULL;
}

static void child(int n)
{
    uint64_t state = 77 + n;
    struct block *own[64] = {0};
    for (int i = 0; i < 500; i++) {
        size_t at = next(&state) % 64;
        if (own[at]) drop(own[at]);
        own[at] = make(&state);
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 4, forks = 0, signals = 0;
    operations = argc > 2 ? atol(argv[2]) : 100000;
    for (int i = 3; i < argc; i++) {
        if (!strncmp(argv[i], "forks=", 6)) forks = atoi(argv[i] + 6);
        if (!strncmp(argv[i], "signals", 7)) signals = argv[i][7] ? atoi(argv[i] + 8) : 200;
    }
    if (signals) {
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
        sigaction(SIGALRM, &action, NULL);
        struct itimerval every = {{0, signals}, {0, signals}};
        setitimer(ITIMER_REAL, &every, NULL);
    }
    pthread_t ids[64];
    for (int i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, work, (void *)(uintptr_t)i)) fail("pthread_create");
    for (int i = 0; i < forks; i++) {
        pid_t pid = fork();
        if (pid < 0) fail("fork");
        if (!pid) {
            alarm(20);
            signal(SIGALRM, SIG_DFL);
            child(i);
        }
        int status;
        while (waitpid(pid, &status, 0) < 0)
            if (errno != EINTR) fail("waitpid");
        if (status) {
            fprintf(stderr, "child %d of %d: status %x\n", i, forks, status);
            abort();
        }
    }
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    if (signals) {
        struct itimerval never = {0};
        setitimer(ITIMER_REAL, &never, NULL);
    }
    for (size_t at = 0; at < SHARED; at++) {
        struct block *b = atomic_load(&shared[at]);
        if (b) drop(b);
    }
    printf("ok %lu signals\n", (unsigned long)handled);
    return 0;
}

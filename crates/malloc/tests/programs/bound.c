/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A heap with a limit. bound small|big|grow: takes blocks until there are no more, and says how much it got. bound
 * tight: frees nearly everything under a soft limit, and says what is kept. bound follow FILE: takes until there is no
 * more, raises the limit in FILE, and takes again. bound tighter FILE: as tight, without a limit, with one, and without. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../include/fastpath.h"

static void *held[1 << 20];
static size_t count;

static size_t take(size_t size)
{
    size_t got = 0;
    while (count < sizeof held / sizeof *held) {
        errno = 0;
        void *block = malloc(size);
        if (!block) {
            if (errno != ENOMEM)
                printf("errno is %d\n", errno), exit(1);
            return got;
        }
        memset(block, 1, size);
        held[count++] = block;
        got += size;
    }
    return got;
}

static void (*stats)(struct fastpath_stats *);

/* What is kept of 12 MiB that were freed: all of it without a limit. */
static size_t kept(void)
{
    void *blocks[12];
    for (int i = 0; i < 12; i++)
        memset(blocks[i] = malloc(1 << 20), 1, 1 << 20);
    for (int i = 0; i < 12; i++)
        free(blocks[i]);
    void *one = malloc(300000);
    struct fastpath_stats now = {.size = sizeof now};
    stats(&now);
    free(one);
    return now.dirty_bytes;
}

/* Writes a limit of the group, and waits until it is read again. */
static void set(const char *path, const char *limit)
{
    int file = open(path, O_WRONLY | O_TRUNC);
    if (write(file, limit, strlen(limit)) != (ssize_t)strlen(limit))
        exit(1);
    close(file);
    sleep(2);
}

int main(int argc, char **argv)
{
    stats = (void (*)(struct fastpath_stats *))dlsym(RTLD_DEFAULT, "fastpath_stats");
    if (!stats || argc < 2)
        return 1;
    if (!strcmp(argv[1], "small")) {
        printf("got %zu\n", take(1000));
    } else if (!strcmp(argv[1], "big")) {
        printf("got %zu\n", take(3 << 20));
    } else if (!strcmp(argv[1], "mapped")) {
        printf("got %zu\n", take(40 << 20));
    } else if (!strcmp(argv[1], "grow")) {
        size_t size = 1 << 20;
        char *block = malloc(size);
        for (char *next; (next = realloc(block, size + (1 << 20))); block = next)
            size += 1 << 20;
        printf("got %zu\n", size);
    } else if (!strcmp(argv[1], "again")) {
        /* What one size left behind is found for another. */
        size_t first = take(1000);
        while (count)
            free(held[--count]);
        size_t second = take(200);
        while (count)
            free(held[--count]);
        size_t third = take(1 << 20);
        while (count)
            free(held[--count]);
        /* A little of each of many sizes is kept for the next ones of these sizes: too much together. */
        for (size_t size = 512; size <= 32768; size += size / 8) {
            for (size_t got = 0; got < 640 << 10 && (held[count] = malloc(size)); got += size)
                count++;
            while (count)
                free(held[--count]);
        }
        size_t fourth = take(1 << 20);
        printf("got %zu\nsecond %zu\nthird %zu\nfourth %zu\n", first, second, third, fourth);
    } else if (!strcmp(argv[1], "tight")) {
        printf("kept %zu\n", kept());
    } else if (!strcmp(argv[1], "tighter")) {
        size_t before = kept();
        set(argv[2], "9437184\n");
        size_t tight = kept();
        set(argv[2], "max\n");
        printf("before %zu\ntight %zu\nafter %zu\n", before, tight, kept());
    } else if (!strcmp(argv[1], "follow")) {
        size_t first = take(1000);
        set(argv[2], "67108864\n");
        printf("got %zu\nsecond %zu\n", first, first + take(1000));
    }
    return 0;
}

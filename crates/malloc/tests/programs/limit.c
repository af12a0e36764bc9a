/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * limit MB: starts itself again under that limit on address space, allocates to the limit in several sizes, frees, and
 * gets as much again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t fill(size_t size)
{
    void **first = NULL;
    size_t bytes = 0;
    for (;;) {
        errno = 0;
        void **block = malloc(size);
        if (!block) break;
        memset(block, 1, size);
        *block = first;
        first = block;
        bytes += size;
    }
    if (errno != ENOMEM) abort();
    while (first) {
        void **next = *first;
        free(first);
        first = next;
    }
    return bytes;
}

int main(int argc, char **argv)
{
    size_t limit = (size_t)(argc > 1 ? atoi(argv[1]) : 64) << 20;
    if (argc < 3) {
        struct rlimit both = {limit, limit};
        if (setrlimit(RLIMIT_AS, &both)) return 1;
        execl(argv[0], argv[0], argv[1], "again", NULL);
        return 1;
    }
    static const size_t sizes[] = {64, 1000, 20000, 100000, 1 << 20, 5 << 20};
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 6; i++) {
            size_t got = fill(sizes[i]);
            if (got < limit / 4) {
                printf("only %zu of %zu in blocks of %zu, round %d\n", got, limit, sizes[i], round);
                return 1;
            }
        }
    puts("ok");
    return 0;
}

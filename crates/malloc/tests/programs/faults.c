/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * faults: run with FASTPATH_TEST_FAULT, which lets mappings fail. Every allocation either works or returns NULL with
 * ENOMEM, and what was allocated before stays whole. Uses no stdio until the end, and no allocation to report. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(const char *what)
{
    (void)!write(2, what, strlen(what));
    abort();
}

int main(void)
{
    static const size_t sizes[] = {1, 24, 100, 1000, 5000, 30000, 70000, 1 << 20, 3 << 20, 40 << 20};
    static unsigned char *blocks[400];
    static size_t size_of[400];
    for (int i = 0; i < 400; i++) {
        size_t size = sizes[i % 10];
        errno = 0;
        blocks[i] = i % 3 == 0 ? calloc(1, size) : i % 3 == 1 ? malloc(size) : aligned_alloc(4096, size);
        if (!blocks[i]) {
            if (errno != ENOMEM) fail("no memory without ENOMEM\n");
            continue;
        }
        size_of[i] = size;
        blocks[i][0] = blocks[i][size - 1] = (unsigned char)(i | 1);
        if (i % 7 == 3) {
            errno = 0;
            unsigned char *grown = realloc(blocks[i], size * 2);
            if (!grown && errno != ENOMEM) fail("realloc failed without ENOMEM\n");
            if (grown) {
                blocks[i] = grown;
                size_of[i] = size * 2;
                if (grown[0] != (unsigned char)(i | 1) || grown[size - 1] != (unsigned char)(i | 1)) fail("realloc lost bytes\n");
                grown[size * 2 - 1] = (unsigned char)(i | 1);
            }
        }
    }
    for (int i = 0; i < 400; i++)
        if (blocks[i]) {
            if (blocks[i][0] != (unsigned char)(i | 1) || blocks[i][size_of[i] - 1] != (unsigned char)(i | 1))
                fail("a block changed\n");
            free(blocks[i]);
        }
    (void)!write(1, "ok\n", 3);
    return 0;
}

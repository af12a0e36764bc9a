/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Plays a trace of allocator calls from standard input against a model. A line is `CALL SLOT SIZE ALIGNMENT`; what the
 * slot holds is freed first, except by realloc. Checked: alignment, usable size, zeroed memory, contents kept by
 * everything until the block is freed (to the last usable byte), and that no two blocks overlap. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 64
static struct { unsigned char *block; size_t size, usable; unsigned char pattern; } slots[SLOTS];
static unsigned char stamp;

#define CHECK(condition) do { if (!(condition)) { fprintf(stderr, "line %d: " #condition "\n", line); exit(1); } } while (0)

static void verify(int at, size_t bytes, int line)
{
    for (size_t i = 0; i < bytes; i++) CHECK(slots[at].block[i] == slots[at].pattern);
}

static void drop(int at, int line)
{
    if (!slots[at].block) return;
    verify(at, slots[at].usable, line);
    errno = 77;
    free(slots[at].block);
    CHECK(errno == 77);
    slots[at].block = NULL;
}

static void keep(int at, void *block, size_t size, size_t alignment, int line)
{
    CHECK(block != NULL);
    CHECK((uintptr_t)block % alignment == 0);
    size_t usable = malloc_usable_size(block);
    CHECK(usable >= size);
    for (int i = 0; i < SLOTS; i++) {
        if (i == at || !slots[i].block) continue;
        uintptr_t a = (uintptr_t)block, b = (uintptr_t)slots[i].block;
        CHECK(a + usable <= b || b + slots[i].usable <= a);
    }
    slots[at].block = block;
    slots[at].size = size;
    slots[at].usable = usable;
    slots[at].pattern = ++stamp;
    memset(block, stamp, usable);
}

int main(void)
{
    char call;
    int at, line = 0;
    size_t size, alignment;
    while (scanf(" %c %d %zu %zu", &call, &at, &size, &alignment) == 4) {
        line++;
        size_t minimum = size < 16 ? 8 : 16;
        if (call != 'r') drop(at, line);
        switch (call) {
        case 'm': keep(at, malloc(size), size, minimum, line); break;
        case 'c': {
            unsigned char *block = calloc(size ? 3 : 0, size / 3);
            for (size_t i = 0; i < size / 3 * 3; i++) CHECK(block[i] == 0);
            keep(at, block, size / 3 * 3, 8, line);
            break;
        }
        case 'a': keep(at, aligned_alloc(alignment, size), size, alignment, line); break;
        case 'p': {
            void *block = NULL;
            CHECK(posix_memalign(&block, alignment < 8 ? 8 : alignment, size) == 0);
            keep(at, block, size, alignment, line);
            break;
        }
        case 'r': {
            unsigned char *old = slots[at].block, pattern = slots[at].pattern;
            size_t common = old ? (slots[at].usable < size ? slots[at].usable : size) : 0;
            if (old) verify(at, slots[at].usable, line);
            unsigned char *block = realloc(old, size ? size : 1);
            CHECK(block != NULL);
            for (size_t i = 0; i < common; i++) CHECK(block[i] == pattern);
            slots[at].block = NULL;
            keep(at, block, size ? size : 1, 8, line);
            break;
        }
        case 't': malloc_trim(0); break;
        case 'f': break;
        default: return 2;
        }
    }
    for (at = 0; at < SLOTS; at++) drop(at, line);
    puts("ok");
    return 0;
}

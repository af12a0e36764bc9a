/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * abi: every C entry point, with glibc's semantics for zero sizes, alignments, overflow and errno. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;
#define CHECK(condition) \
    do { if (!(condition)) { printf("line %d: %s\n", __LINE__, #condition); failures++; } } while (0)
/* A failure must set errno to ENOMEM. */
#define FAILS(call) \
    do { errno = 0; void *volatile r = (call); CHECK(r == NULL); CHECK(errno == ENOMEM); } while (0)

extern void cfree(void *) __attribute__((weak));
extern void free_sized(void *, size_t) __attribute__((weak));
extern void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));

static volatile size_t zero = 0, huge = (size_t)1 << 63, most = PTRDIFF_MAX, all = SIZE_MAX;

int main(void)
{
    /* Zero sizes: a pointer of its own that can be freed. */
    void *a = malloc(zero), *b = malloc(zero);
    CHECK(a && b && a != b);
    free(a);
    free(b);
    CHECK((a = calloc(zero, 8)) != NULL);
    free(a);
    CHECK((a = realloc(NULL, zero)) != NULL);
    CHECK(realloc(a, zero) == NULL);
    free(NULL);

    /* Overflow and PTRDIFF_MAX. */
    FAILS(malloc(huge));
    FAILS(malloc(all));
    FAILS(malloc(most + 1));
    FAILS(malloc(most));
    FAILS(calloc(all / 2, 3));
    FAILS(calloc(huge, 2));
    FAILS(calloc(most, 1));
    FAILS(reallocarray(NULL, all / 2, 3));
    FAILS(aligned_alloc(64, huge));
    FAILS(memalign(4096, all - 4096));
    FAILS(valloc(all));
    FAILS(pvalloc(all));
    a = malloc(100);
    memset(a, 7, 100);
    FAILS(realloc(a, huge));
    FAILS(realloc(a, most));
    FAILS(reallocarray(a, all / 2, 3));
    for (int i = 0; i < 100; i++) CHECK(((char *)a)[i] == 7);
    free(a);

    /* Alignment. */
    for (size_t size = 1; size < 70000; size += size / 7 + 1) {
        a = malloc(size);
        CHECK((uintptr_t)a % 16 == 0);
        CHECK(malloc_usable_size(a) >= size);
        memset(a, 1, malloc_usable_size(a));
        free(a);
    }
    for (size_t align = 1; align <= (size_t)1 << 31; align *= 2) {
        static const size_t sizes[] = {0, 1, 17, 100, 5000, 40000, 300000};
        for (int i = 0; i < 7; i++) {
            a = aligned_alloc(align, sizes[i]);
            CHECK(a && (uintptr_t)a % align == 0);
            if (sizes[i]) memset(a, 1, sizes[i]);
            free(a);
            a = memalign(align, sizes[i]);
            CHECK(a && (uintptr_t)a % align == 0);
            free(a);
            if (align >= sizeof(void *)) {
                a = NULL;
                CHECK(posix_memalign(&a, align, sizes[i]) == 0);
                CHECK(a && (uintptr_t)a % align == 0);
                a = realloc(a, sizes[i] + 100000);
                CHECK(a != NULL);
                free(a);
            }
        }
    }
    a = (void *)0x77;
    CHECK(posix_memalign(&a, 3, 8) == EINVAL && a == (void *)0x77);
    CHECK(posix_memalign(&a, 0, 8) == EINVAL && a == (void *)0x77);
    CHECK(posix_memalign(&a, 4, 8) == EINVAL && a == (void *)0x77);
    CHECK(posix_memalign(&a, 24, 8) == EINVAL && a == (void *)0x77);
    CHECK(posix_memalign(&a, 64, huge) == ENOMEM && a == (void *)0x77);
    CHECK((a = aligned_alloc(3, 8)) != NULL);
    free(a);
    errno = 0;
    CHECK(memalign(huge + 1, 8) == NULL && errno == EINVAL);
    CHECK((a = valloc(10)) && (uintptr_t)a % 4096 == 0);
    free(a);
    CHECK((a = pvalloc(4097)) && (uintptr_t)a % 4096 == 0 && malloc_usable_size(a) >= 8192);
    memset(a, 1, 8192);
    free(a);

    /* calloc after dirty reuse. */
    for (size_t size = 8; size < 6000000; size = size * 3 / 2 + 1) {
        for (int round = 0; round < 3; round++) {
            unsigned char *p = malloc(size);
            memset(p, 0xff, size);
            free(p);
            p = calloc(1, size);
            for (size_t i = 0; i < size; i++)
                if (p[i]) {
                    CHECK(!"calloc is not zero");
                    break;
                }
            free(p);
        }
    }

    /* realloc keeps the contents, up and down. */
    for (size_t from = 1; from < 3000000; from = from * 5 / 3 + 3)
        for (size_t to = 1; to < 3000000; to = to * 5 / 2 + 3) {
            unsigned char *p = malloc(from);
            for (size_t i = 0; i < from; i += 97) p[i] = (unsigned char)(i / 97);
            p = realloc(p, to);
            CHECK(p != NULL && (uintptr_t)p % 16 == 0);
            for (size_t i = 0; i < from && i < to; i += 97)
                if (p[i] != (unsigned char)(i / 97)) {
                    printf("%zu to %zu: ", from, to);
                    CHECK(!"realloc lost bytes");
                    break;
                }
            p[to - 1] = 1;
            free(p);
        }

    /* free keeps errno, whatever the size. */
    for (size_t size = 16; size <= (size_t)200 << 20; size *= 7) {
        a = malloc(size);
        errno = 123;
        free(a);
        CHECK(errno == 123);
    }
    errno = 123;
    free(NULL);
    CHECK(errno == 123);

    CHECK(malloc_usable_size(NULL) == 0);
    if (cfree) cfree(malloc(10));
    if (free_sized) free_sized(malloc(10), 10), free_sized(NULL, 0);
    if (free_aligned_sized) free_aligned_sized(aligned_alloc(64, 128), 64, 128);
    else if (getenv("FASTPATH_EXPECTED")) CHECK(!"free_aligned_sized is missing");

    /* What a program can ask. */
    a = malloc(10 << 20);
    struct mallinfo2 before = mallinfo2();
    CHECK(before.uordblks + before.hblkhd >= (10 << 20));
    struct mallinfo old = mallinfo();
    CHECK(old.uordblks + old.hblkhd >= (10 << 20));
    free(a);
    struct mallinfo2 after = mallinfo2();
    CHECK(after.uordblks + after.hblkhd < before.uordblks + before.hblkhd);
    CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    CHECK(malloc_info(0, stream) == 0);
    fclose(stream);
    CHECK(text && strstr(text, "<malloc version") && strstr(text, "</malloc>"));
    free(text);
    errno = 0;
    CHECK(malloc_info(1, stdout) != 0);
    malloc_trim(0);
    puts(failures ? "failed" : "ok");
    return failures != 0;
}

/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * misuse N: small programs with one heap bug each. An allocator that notices ends the process by a signal; one that
 * does not lets it print "not caught". `misuse count` prints how many there are. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *volatile sink;
static void *get(size_t size) { return sink = malloc(size); }
static void put(void *pointer) { free((sink = pointer, (void *)sink)); }

/* Double frees. */
static void at_once(void) { void *a = get(40); put(a); put(a); }
static void at_once_large(void) { void *a = get(3000); put(a); put(a); }
static void at_once_mapped(void) { void *a = get(40 << 20); put(a); put(a); }
static void at_once_run(void) { void *a = get(200000); put(a); put(a); }
static void one_between(void) { void *a = get(40), *b = get(40); put(a); put(b); put(a); }
static void nine_between(void) { void *a = get(40), *b[9]; for (int i = 0; i < 9; i++) b[i] = get(40); put(a); for (int i = 0; i < 9; i++) put(b[i]); put(a); }
static void much_between(void) { void *a = get(40), *b[500]; for (int i = 0; i < 500; i++) b[i] = get(40); put(a); for (int i = 0; i < 500; i++) put(b[i]); put(a); }
static void realloc_then_free(void) { void *a = get(40); sink = realloc(a, 4000); put(a); }
static void free_then_realloc(void) { void *a = get(40); put(a); sink = realloc((sink = a, (void *)sink), 4000); }
static void other_size_between(void) { void *a = get(40), *b = get(2000); put(a); put(b); put(a); }
static void then_drained(void) { void *a = get(64); put(a); put(a); for (int i = 0; i < 1000; i++) get(64); }
static void zero_twice(void) { void *a = get(0); put(a); put(a); }

static void *free_it(void *pointer) { free(pointer); return NULL; }
static void elsewhere(void *p) { pthread_t t; pthread_create(&t, NULL, free_it, p); pthread_join(t, NULL); }
static void by_two_threads(void) { void *a = get(40); elsewhere(a); put(a); }
static void by_two_threads_large(void) { void *a = get(20000); elsewhere(a); put(a); }
static void stale_owner(void) { void *a = get(40); put(a); void *b = get(40); put(a); put(b); }
static void aligned_twice(void) { void *a = aligned_alloc(256, 500); put(a); put(a); }

/* Pointers that are no blocks. */
static void inside_by_8(void) { put((char *)get(100) + 8); }
static void inside_by_16(void) { put((char *)get(100) + 16); }
static void inside_large(void) { put((char *)get(100000) + 4096); }
static void inside_mapped(void) { put((char *)get(40 << 20) + 65536); }
static void on_stack(void) { char local[64] __attribute__((aligned(16))); memset(local, 0, sizeof local); put(local); }
static char data[256] __attribute__((aligned(16)));
static void in_data(void) { put(data + 64); }
static void nonsense(void) { put((void *)(uintptr_t)0x1234567890); }
static void small_integer(void) { put((void *)(uintptr_t)48); }
static void odd(void) { put((char *)get(100) + 1); }

/* Overflows and uses after free that break what the allocator stores beside or in the block. */
static void overflow_by_8(void) { char *a = get(24), *b = get(24); get(24); memset(a, 0x41, 32); put(b); put(a); for (int i = 0; i < 20; i++) get(24); }
static void overflow_long(void) { char *a = get(40), *b = get(40); get(40); memset(a, 0x41, 100); put(b); put(a); for (int i = 0; i < 20; i++) get(40); }
static void written_after_free(void) { char *a = get(40), *b = get(40); put(b); put(a); memset(a, 0x41, 16); for (int i = 0; i < 200; i++) memset(get(40), 1, 40); }
static void underflow(void) { char *a = get(40); memset(a - 16, 0x41, 16); put(a); get(5000); }

static void (*const cases[])(void) = {
    at_once, at_once_large, at_once_mapped, at_once_run, one_between, nine_between, much_between, realloc_then_free,
    free_then_realloc, other_size_between, then_drained, zero_twice,
    by_two_threads, by_two_threads_large, stale_owner, aligned_twice,
    inside_by_8, inside_by_16, inside_large, inside_mapped, on_stack, in_data, nonsense, small_integer, odd,
    overflow_by_8, overflow_long, written_after_free, underflow,
};

int main(int argc, char **argv)
{
    int count = sizeof cases / sizeof *cases;
    if (argc < 2 || !strcmp(argv[1], "count")) {
        printf("%d\n", count);
        return 0;
    }
    int which = atoi(argv[1]);
    if (which < 0 || which >= count) return 2;
    cases[which]();
    puts("not caught");
    return 0;
}

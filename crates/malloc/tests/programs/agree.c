/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Every way to ask the heap, one after the other and without a call to malloc in between; then the process says what the
 * kernel knows, and waits for its standard input to end. */
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../include/fastpath.h"

#define COUNT 100000
static void *blocks[COUNT];
static char xml_buffer[65536], out_buffer[65536], json[4096], metrics[16384], statm[256];

static long resident(void)
{
    int file = open("/proc/self/statm", O_RDONLY);
    ssize_t length = read(file, statm, sizeof statm - 1);
    close(file);
    statm[length > 0 ? length : 0] = 0;
    char *second = strchr(statm, ' ');
    return second ? atol(second + 1) * 4096 : 0;
}

int main(int argc, char **argv)
{
    size_t (*to_json)(char *, size_t) = (size_t (*)(char *, size_t))dlsym(RTLD_DEFAULT, "fastpath_json");
    size_t (*to_metrics)(char *, size_t) = (size_t (*)(char *, size_t))dlsym(RTLD_DEFAULT, "fastpath_metrics");
    void (*stats)(struct fastpath_stats *) = (void (*)(struct fastpath_stats *))dlsym(RTLD_DEFAULT, "fastpath_stats");
    if (!to_json || !to_metrics || !stats)
        return 1;
    setvbuf(stdout, out_buffer, _IOFBF, sizeof out_buffer);
    FILE *xml = fopen(argv[1], "w");
    setvbuf(xml, xml_buffer, _IOFBF, sizeof xml_buffer);
    struct fastpath_stats before = {.size = sizeof before}, now = {.size = sizeof now};
    for (int i = 0; i < 1000; i++)
        free(malloc(1024));
    stats(&before);
    long resident_before = resident();
    for (int i = 0; i < COUNT; i++)
        memset(blocks[i] = malloc(1024), 1, 1024);
    for (int i = 0; i < COUNT; i += 10)
        free(blocks[i]);
    char *big = malloc(20 << 20);
    memset(big, 1, 20 << 20);
    long resident_now = resident();
    stats(&now);
    struct mallinfo2 info = mallinfo2();
    to_json(json, sizeof json);
    to_metrics(metrics, sizeof metrics);
    malloc_stats();
    malloc_info(0, xml);
    fclose(xml);
    const uint64_t *figure = &now.small_bytes;
    printf("figures");
    for (int i = 0; i < 19; i++)
        printf(" %llu", (unsigned long long)figure[i]);
    printf("\nsmall_more %lld\nbig_more %lld\nresident_more %ld\nresident %ld\n", (long long)(now.small_bytes - before.small_bytes),
           (long long)(now.big_bytes - before.big_bytes), resident_now - resident_before, resident_now);
    printf("mallinfo %zu %zu %zu %zu\n", info.uordblks, info.hblkhd, info.arena, info.fordblks);
    printf("json %smetrics\n%s", json, metrics);
    fflush(stdout);
    /* Slow paths bring the page up to date; the last one here frees what it took. */
    for (int round = 0; round < 70; round++) {
        usleep(20000);
        for (int i = 0; i < 64; i++)
            free(malloc(200000));
    }
    puts("\nready");
    fflush(stdout);
    char byte;
    while (argc > 2 && read(0, &byte, 1) > 0)
        for (int i = 0; i < 2000; i++)
            free(malloc(200000));
    return 0;
}

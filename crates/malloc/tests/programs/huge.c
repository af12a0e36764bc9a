/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * huge: which memory the kernel may back by huge pages, as /proc/self/smaps tells it. Prints "open" and "closed" (KiB
 * of mappings with the flags hg and nh), "backed" (KiB in huge pages) and "mappings" (their number) of a small heap, with 64 MiB of small blocks,
 * beside large blocks (a run, a mapping, one that grew into a mapping), after those were freed, after all was, and with
 * 64 MiB of small blocks again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 64 << 20, EACH = 512, RUN = 20 << 20, MAPPED = 80 << 20 };

static void tell(const char *when)
{
    static char line[512];
    long size = 0, open = 0, closed = 0, backed = 0, mappings = 0, value;
    FILE *file = fopen("/proc/self/smaps", "r");
    if (!file) exit(77);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "Size: %ld", &value) == 1) size = value;
        if (sscanf(line, "AnonHugePages: %ld", &value) == 1) backed += value;
        if (!strncmp(line, "VmFlags:", 8)) {
            mappings++;
            if (strstr(line, " hg")) open += size;
            if (strstr(line, " nh")) closed += size;
        }
    }
    fclose(file);
    printf("%s open %ld closed %ld backed %ld mappings %ld\n", when, open, closed, backed, mappings);
}

int main(void)
{
    static char *blocks[SMALL / EACH];
    blocks[0] = malloc(EACH);
    tell("start");
    for (int i = 1; i < SMALL / EACH; i++) {
        blocks[i] = malloc(EACH);
        memset(blocks[i], i, EACH);
    }
    tell("small");
    char *run = malloc(RUN), *mapped = malloc(MAPPED), *grown = malloc(3 << 20);
    for (size_t size = 4 << 20; size <= MAPPED; size += 4 << 20) grown = realloc(grown, size);
    memset(run, 1, RUN);
    memset(mapped, 2, MAPPED);
    memset(grown, 3, MAPPED);
    tell("large");
    free(run);
    free(mapped);
    free(grown);
    tell("freed");
    for (int i = 0; i < SMALL / EACH; i++) free(blocks[i]);
    tell("end");
    for (int i = 0; i < SMALL / EACH; i++) {
        blocks[i] = malloc(EACH);
        memset(blocks[i], i, EACH);
    }
    tell("again");
    puts("ok");
    return 0;
}

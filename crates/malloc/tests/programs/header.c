/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A user of fastpath.h, built against an installed prefix; also compiled as C++. */
#include <fastpath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    struct fastpath_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    struct fastpath_cache *cache = fastpath_cache_create("header", 72, 16);
    void *first, *second;
    if (!cache) return 1;
    first = fastpath_cache_alloc(cache);
    second = fastpath_cache_alloc(cache);
    if (!first || !second || first == second) return 2;
    memset(first, 1, 72);
    memset(second, 2, 72);
    if (((char *)first)[71] != 1) return 3;
    fastpath_cache_free(cache, first);
    fastpath_cache_free(cache, second);
    fastpath_cache_destroy(cache);
    char *block = (char *)malloc(100000);
    fastpath_stats(&stats);
    if (stats.big_bytes < 100000) return 4;
    free(block);
    fastpath_trim();
    printf("ok %s\n", fastpath_version());
    return 0;
}

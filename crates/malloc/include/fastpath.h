/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What libfastpath offers beside the C library's own names (malloc, free, ...), which it defines as malloc.h declares
 * them. Link with `pkg-config --libs fastpath`, or find the functions by dlsym in a program that is merely run on it.
 */
#ifndef FASTPATH_H
#define FASTPATH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FASTPATH_VERSION_MAJOR 0
#define FASTPATH_VERSION_MINOR 1

/* What the heap holds, in bytes where the name says so. A look at a moving thing, not a snapshot. The structure only
 * grows: set `size` to sizeof(struct fastpath_stats) before the call, and no more than that is written. */
struct fastpath_stats {
    size_t size;
    uint64_t small_bytes;    /* small objects that the program has */
    uint64_t small_objects;  /* the same, as a number */
    uint64_t cached_bytes;   /* small objects that wait in CPUs' sheaves and in barns */
    uint64_t slab_bytes;     /* memory of slabs, whether their objects are in use or not */
    uint64_t big_bytes;      /* blocks above the largest size class that the program has */
    uint64_t mapped_bytes;   /* of them, those with a mapping of their own */
    uint64_t dirty_bytes;    /* free memory not given back to the system yet */
    uint64_t reserved_bytes; /* address space reserved for slabs and page runs */
    uint64_t purged_bytes;   /* memory given back to the system so far */
    uint64_t record_bytes;   /* the heap's own records */
    uint64_t refills;        /* sheaves that went to CPUs so far */
    uint64_t refilled;       /* objects in them */
    uint64_t flushes;        /* sheaves that came back so far */
    uint64_t flushed;        /* objects in them */
    uint64_t direct_allocs;  /* small objects allocated without a sheaf so far */
    uint64_t direct_frees;   /* small objects freed without a sheaf so far */
    uint64_t big_allocs;     /* big blocks allocated so far */
    uint64_t big_frees;      /* big blocks freed so far */
    uint64_t barn_bytes;     /* of cached_bytes, those in barns; the rest is in CPUs' sheaves */
};

void fastpath_stats(struct fastpath_stats *stats);

/* Gives free memory back to the system, out of the CPUs' sheaves too; 1 if there was any. */
int fastpath_trim(void);

/* The statistics as OpenMetrics text, or as JSON, into a buffer of the caller's. At most `size` bytes are written, the last one a
 * zero; the result is the length of the whole text, so that `fastpath_metrics(NULL, 0)` says how much room it takes. */
size_t fastpath_metrics(char *out, size_t size);
size_t fastpath_json(char *out, size_t size);

/* Writes the heap profile so far to a file, in pprof's format. 0, or -1 and EINVAL: the program was started without
 * FASTPATH_PROFILE, or the file cannot be written. May be called in a signal handler. */
int fastpath_profile_write(const char *path);

/* The version of the library that runs, such as "0.1.0". */
const char *fastpath_version(void);

/* A cache of objects of one size and alignment (a power of two, up to 32 KiB), as the kernel's kmem_cache. Objects may be freed by
 * any thread, with the cache they came from. NULL and ENOMEM if there is no memory. Caches of the same size share
 * their slabs. */
struct fastpath_cache;
struct fastpath_cache *fastpath_cache_create(const char *name, size_t size, size_t align);
void *fastpath_cache_alloc(struct fastpath_cache *cache);
void fastpath_cache_free(struct fastpath_cache *cache, void *object);
/* The objects must have been freed. */
void fastpath_cache_destroy(struct fastpath_cache *cache);

#ifdef __cplusplus
}
#endif
#endif

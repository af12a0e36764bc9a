/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * late LIBRARY: loads the allocator into a running program with threads, uses it through dlsym, unloads it (which must
 * leave it in place) and lets threads that used it go on and end. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *(*get)(size_t);
static void (*put)(void *);

static void *work(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        char *block = get((size_t)(i % 3000) + 1);
        if (!block) abort();
        block[0] = block[i % 3000] = 1;
        put(block);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    for (int round = 0; round < 3; round++) {
        void *handle = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
        if (!handle) {
            puts(dlerror());
            return 1;
        }
        get = (void *(*)(size_t))dlsym(handle, "malloc");
        put = (void (*)(void *))dlsym(handle, "free");
        pthread_t threads[4];
        for (int t = 0; t < 4; t++) pthread_create(&threads[t], NULL, work, NULL);
        dlclose(handle);
        for (int t = 0; t < 4; t++) pthread_join(threads[t], NULL);
        work(NULL);
    }
    puts("ok");
    return 0;
}

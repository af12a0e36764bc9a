/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * vfork: children that allocate on the parent's memory, before and while other threads allocate too. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop;

static void use(unsigned char mark)
{
    void *blocks[200];
    for (int i = 0; i < 200; i++) {
        size_t size = (size_t)(i * 13 + 1);
        if (!(blocks[i] = malloc(size))) abort();
        memset(blocks[i], mark, size);
    }
    for (int i = 0; i < 200; i++) {
        for (int at = 0; at < i * 13 + 1; at++)
            if (((unsigned char *)blocks[i])[at] != mark) abort();
        free(blocks[i]);
    }
}

static void *churn(void *mark)
{
    while (!stop) use((unsigned char)(size_t)mark);
    return NULL;
}

int main(void)
{
    pthread_t threads[3];
    for (int i = 0; i < 300; i++) {
        if (i == 100)
            for (size_t t = 0; t < 3; t++) pthread_create(&threads[t], NULL, churn, (void *)(t + 1));
        pid_t pid = vfork();
        if (pid == 0) {
            use(0x55);
            _exit(7);
        }
        int status;
        if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 7) {
            printf("child %d: %x\n", i, status);
            return 1;
        }
        use(0xaa);
    }
    stop = 1;
    for (int t = 0; t < 3; t++) pthread_join(threads[t], NULL);
    puts("ok");
    return 0;
}

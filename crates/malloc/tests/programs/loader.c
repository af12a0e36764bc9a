/* SPDX-FileCopyrightText: The fastpath developers
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * loader PLUGIN: a C program without a C++ runtime that loads the plugin and runs it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *handle = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!handle) {
        puts(dlerror());
        return 1;
    }
    int (*plugin)(void) = (int (*)(void))dlsym(handle, "plugin");
    int status = plugin ? plugin() : 1;
    dlclose(handle);
    return status;
}

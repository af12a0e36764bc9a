// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0
//
// operators: every form of operator new and delete, the new handler and std::bad_alloc. Built as a program, and as a
// plugin (with -DPLUGIN) that a C program loads by dlopen.
#include <cstdint>
#include <cstdio>
#include <new>

static int failures;
#define CHECK(condition) \
    do { if (!(condition)) { std::printf("line %d: %s\n", __LINE__, #condition); failures++; } } while (0)

static int calls;
static void gives_up() { if (++calls == 3) std::set_new_handler(nullptr); }
struct Own {};
static void throws_own() { throw Own(); }
static void throws_bad_alloc() { throw std::bad_alloc(); }

static void *volatile keep;
static volatile std::size_t huge = std::size_t(1) << 62;

template <class F> static bool throws(F call)
{
    try {
        call();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static int run()
{
    using align = std::align_val_t;
    void *p;
    p = ::operator new(0); CHECK(p); ::operator delete(p);
    p = ::operator new(100); CHECK(std::uintptr_t(p) % 16 == 0); ::operator delete(p);
    p = ::operator new(100); ::operator delete(p, std::size_t(100));
    p = ::operator new[](100); ::operator delete[](p);
    p = ::operator new[](100); ::operator delete[](p, std::size_t(100));
    p = ::operator new(100, std::nothrow); CHECK(p); ::operator delete(p, std::nothrow);
    p = ::operator new[](100, std::nothrow); CHECK(p); ::operator delete[](p, std::nothrow);
    for (std::size_t a = 16; a <= 1 << 22; a *= 4) {
        p = ::operator new(100, align(a)); CHECK(std::uintptr_t(p) % a == 0); ::operator delete(p, align(a));
        p = ::operator new[](100, align(a)); CHECK(std::uintptr_t(p) % a == 0); ::operator delete[](p, align(a));
        p = ::operator new(100, align(a)); ::operator delete(p, std::size_t(100), align(a));
        p = ::operator new[](100, align(a)); ::operator delete[](p, std::size_t(100), align(a));
        p = ::operator new(100, align(a), std::nothrow); CHECK(p); ::operator delete(p, align(a), std::nothrow);
        p = ::operator new[](100, align(a), std::nothrow); CHECK(p); ::operator delete[](p, align(a), std::nothrow);
    }
    ::operator delete(nullptr);

    CHECK(throws([] { keep = ::operator new(huge); }));
    CHECK(throws([] { keep = ::operator new[](huge); }));
    CHECK(throws([] { keep = ::operator new(huge, align(64)); }));
    CHECK(throws([] { keep = ::operator new[](huge, align(4096)); }));
    CHECK(::operator new(huge, std::nothrow) == nullptr);
    CHECK(::operator new[](huge, std::nothrow) == nullptr);
    CHECK(::operator new(huge, align(64), std::nothrow) == nullptr);
    CHECK(::operator new[](huge, align(64), std::nothrow) == nullptr);

    // The handler is called until it gives up, by every form.
    calls = 0; std::set_new_handler(gives_up); CHECK(throws([] { keep = ::operator new(huge); })); CHECK(calls == 3);
    calls = 0; std::set_new_handler(gives_up); CHECK(throws([] { keep = ::operator new(huge, align(64)); })); CHECK(calls == 3);
    calls = 0; std::set_new_handler(gives_up); CHECK(!::operator new(huge, std::nothrow)); CHECK(calls == 3);
    calls = 0; std::set_new_handler(gives_up); CHECK(!::operator new(huge, align(64), std::nothrow)); CHECK(calls == 3);

    // What the handler throws passes through, or is turned into a null pointer.
    std::set_new_handler(throws_own);
    bool own = false;
    try { keep = ::operator new(huge); } catch (const Own &) { own = true; }
    CHECK(own);
    std::set_new_handler(throws_bad_alloc);
    CHECK(throws([] { keep = ::operator new(huge); }));
#ifndef STATIC // Nobody can catch for the nothrow form there.
    CHECK(::operator new(huge, std::nothrow) == nullptr);
#endif
    std::set_new_handler(nullptr);
    std::puts(failures ? "failed" : "ok");
    return failures != 0;
}

#ifdef PLUGIN
extern "C" int plugin() { return run(); }
#else
int main() { return run(); }
#endif

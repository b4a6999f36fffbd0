/* direct.c - a shim to preload: every open below /mnt gets O_DIRECT, for programs that do not know it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/types.h>

static int flags_for(const char *path, int flags) {
    return strncmp(path, "/mnt/", 5) == 0 && !(flags & O_DIRECTORY) ? flags | O_DIRECT : flags;
}

static mode_t mode_of(int flags, va_list rest) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name)                                                                  \
    int name(const char *path, int flags, ...) {                                    \
        static int (*real)(const char *, int, ...);                                 \
        va_list rest;                                                               \
        va_start(rest, flags);                                                      \
        mode_t mode = mode_of(flags, rest);                                         \
        va_end(rest);                                                               \
        if (!real)                                                                  \
            real = dlsym(RTLD_NEXT, #name);                                         \
        return real(path, flags_for(path, flags), mode);                            \
    }

#define OPENAT(name)                                                                \
    int name(int dir, const char *path, int flags, ...) {                           \
        static int (*real)(int, const char *, int, ...);                            \
        va_list rest;                                                               \
        va_start(rest, flags);                                                      \
        mode_t mode = mode_of(flags, rest);                                         \
        va_end(rest);                                                               \
        if (!real)                                                                  \
            real = dlsym(RTLD_NEXT, #name);                                         \
        return real(dir, path, flags_for(path, flags), mode);                       \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

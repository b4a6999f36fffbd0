/* Lets Debian's user-mode Linux run on processors with AMX.
 *
 * It sets its processes' registers by PTRACE_SETREGSET with the 2.7 KB that it knows of (NT_X86_XSTATE). A host whose processor has
 * more state wants all of it, or says EFAULT, and the guest dies at its first process. This goes in front of it (LD_PRELOAD), and
 * adds what the process has of the rest. A host that takes it as it is never sees the difference. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* More than any processor has. Not on the stack: the guest's are small. It has one thread that calls this. */
static char whole[64 << 10] __attribute__((aligned(64)));

long ptrace(enum __ptrace_request request, ...)
{
    va_list rest;
    va_start(rest, request);
    pid_t pid = va_arg(rest, pid_t);
    void *address = va_arg(rest, void *);
    void *data = va_arg(rest, void *);
    va_end(rest);
    /* The bare call stores what it peeks where glibc's gives it back, and any word may be -1. */
    if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
        long word;
        if (syscall(SYS_ptrace, request, pid, address, &word) < 0)
            return -1;
        errno = 0;
        return word;
    }
    if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
        struct iovec *given = data, all = { whole, sizeof whole };
        if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, address, &all) == 0 && all.iov_len > given->iov_len) {
            memcpy(whole, given->iov_base, given->iov_len);
            return syscall(SYS_ptrace, request, pid, address, &all);
        }
    }
    return syscall(SYS_ptrace, request, pid, address, data);
}

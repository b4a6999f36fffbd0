/* failing-log.c - preloaded into the server: the disk under the write log fails, once, as Linux lets a disk fail.
 *
 * When the file $FAILING_LOG is there, the next fdatasync of a file called tarn.log (or, if the file says "write", the next
 * write to it) fails with EIO. What was written since the last good flush is gone: the old bytes are put back, for that is
 * what is on the disk when the kernel drops pages that it could not write. Every later call succeeds again and keeps
 * nothing from before: a server that believes it loses what it acknowledges.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct undo { off_t at; size_t size; char *old; struct undo *next; };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct undo *unflushed;
static int failed;
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_fdatasync)(int);

static void __attribute__((constructor)) begin(void)
{
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
}

static int is_log(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    char *name = strrchr(path, '/');
    return name && strcmp(name, "/tarn.log") == 0;
}

static int due(const char *how)
{
    const char *path = getenv("FAILING_LOG");
    char said[16] = "";
    if (failed || !path)
        return 0;
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return 0;
    ssize_t size = read(fd, said, sizeof said - 1);
    close(fd);
    return size >= 0 && strncmp(said, how, strlen(how)) == 0;
}

/* The newest first, so that the oldest bytes win. */
static void lose(int fd)
{
    failed = 1;
    while (unflushed) {
        struct undo *one = unflushed;
        real_pwrite(fd, one->old, one->size, one->at);
        unflushed = one->next;
        free(one->old);
        free(one);
    }
    fprintf(stderr, "failing-log: the disk has failed\n");
}

static void keep(int fd, size_t size, off_t at)
{
    struct undo *one = malloc(sizeof *one);
    *one = (struct undo){ at, size, calloc(1, size ? size : 1), unflushed };
    if (pread(fd, one->old, size, at) >= 0)
        unflushed = one;
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off_t at)
{
    if (!is_log(fd))
        return real_pwrite(fd, bytes, size, at);
    pthread_mutex_lock(&mutex);
    ssize_t written = -1;
    if (due("write")) {
        lose(fd);
        errno = EIO;
    } else {
        keep(fd, size, at);
        written = real_pwrite(fd, bytes, size, at);
    }
    pthread_mutex_unlock(&mutex);
    return written;
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) { return pwrite64(fd, bytes, size, at); }

int fdatasync(int fd)
{
    if (!is_log(fd))
        return real_fdatasync(fd);
    pthread_mutex_lock(&mutex);
    int result = -1;
    if (due("flush")) {
        lose(fd);
        errno = EIO;
    } else {
        result = real_fdatasync(fd);
        while (result == 0 && unflushed) {
            struct undo *one = unflushed;
            unflushed = one->next;
            free(one->old);
            free(one);
        }
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

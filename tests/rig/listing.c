// listing DIRECTORY - lists it and asks for each name's attributes; prints names, names that came before, and milliseconds.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static int order(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }

int main(int count, char **arguments) {
    struct timespec begin, end;
    struct dirent *entry;
    struct stat attributes;
    size_t names = 0, room = 0, twice = 0;
    char **seen = NULL;
    DIR *directory = count == 2 ? opendir(arguments[1]) : NULL;
    if (!directory) return 1;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while ((entry = readdir(directory))) {
        if (fstatat(dirfd(directory), entry->d_name, &attributes, AT_SYMLINK_NOFOLLOW)) return 2;
        if (names == room) seen = realloc(seen, (room = room * 2 + 1024) * sizeof *seen);
        if (!seen || !(seen[names++] = strdup(entry->d_name))) return 3;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    qsort(seen, names, sizeof *seen, order);
    for (size_t at = 1; at < names; at++) twice += !strcmp(seen[at - 1], seen[at]);
    printf("%zu %zu %ld\n", names, twice,
           (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000);
}

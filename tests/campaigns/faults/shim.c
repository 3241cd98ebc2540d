/* Preloaded into a test's process: fails a chosen call that writes to a chosen file.
 *
 * fault_arm(path, n, mode): call number n (from 0) that writes or syncs the file `path` fails;
 * n < 0 only counts. Modes: 'N' no space, from then on; 'E' an I/O error, once; 'S' a short write
 * (half of it), once, after which the next call is a good one; 'T' a short write and then no space.
 * fault_disarm() returns how many such calls there were.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char target[PATH_MAX];
static long count, chosen;
static char mode, full;

void fault_arm(const char *path, long n, char how) {
    snprintf(target, sizeof target, "%s", path);
    count = 0, chosen = n, mode = how, full = 0;
}

long fault_disarm(void) {
    target[0] = 0;
    return count;
}

static int is_target(int fd) {
    char link[64], path[PATH_MAX];
    if (!target[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return strcmp(path, target) == 0;
}

/* Return how many of `size` bytes may be written: -1 for none of them, with errno set. */
static ssize_t allowed(int fd, size_t size) {
    if (!is_target(fd)) return (ssize_t)size;
    if (full) { count++; errno = ENOSPC; return -1; }
    if (count++ != chosen) return (ssize_t)size;
    if ((mode == 'S' || mode == 'T') && size > 1) { full = mode == 'T'; return (ssize_t)(size / 2); }
    if (mode == 'N' || mode == 'T') { full = 1; errno = ENOSPC; return -1; }
    if (mode == 'S') return (ssize_t)size;
    errno = EIO;
    return -1;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    ssize_t n = allowed(fd, size);
    return n < 0 ? -1 : real(fd, data, (size_t)n);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(pwrite);
    ssize_t n = allowed(fd, size);
    return n < 0 ? -1 : real(fd, data, (size_t)n, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    REAL(pwrite64);
    ssize_t n = allowed(fd, size);
    return n < 0 ? -1 : real(fd, data, (size_t)n, at);
}

int fsync(int fd) {
    REAL(fsync);
    return allowed(fd, 1) < 0 ? -1 : real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    return allowed(fd, 1) < 0 ? -1 : real(fd);
}

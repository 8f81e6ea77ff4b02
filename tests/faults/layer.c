/* What does a program do to the files of one folder, and what if one of these calls fails?
 *
 * Preloaded under Python (LD_PRELOAD), so that Python, Arrow and everything else go through it alike. For paths
 * under layer_watch's root it numbers every call that changes something, writes it with its data to a log, and lets
 * the chosen one fail, come short, or kill the process. Everything else passes untouched.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FAIL = 0, SHORT = 1, KILL_BEFORE = 2, KILL_AFTER = 3, TORN = 4 };
enum { MAX_FD = 4096 };

static char root[PATH_MAX];
static size_t root_length;
static int log_fd = -1;
static char watched[MAX_FD];
static long counted, strike_at = -1;
static int strike_kind, strike_errno, strike_for_good;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* ---- what a test calls, through ctypes ---- */

void layer_watch(const char *folder, const char *log) {
    root_length = strlen(folder);
    memcpy(root, folder, root_length + 1);
    log_fd = log ? REAL(open64)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    counted = 0;
    strike_at = -1;
}

void layer_strike(long at, int kind, int error, int for_good) {
    strike_at = at;
    strike_kind = kind;
    strike_errno = error;
    strike_for_good = for_good;
}

long layer_count(void) { return counted; }

static void record(const char *op, int fd, const char *one, const char *two, const void *data, size_t size, off_t at) {
    if (log_fd < 0) return;
    char head[2 * PATH_MAX + 128];
    int length = snprintf(head, sizeof head, "%s\t%d\t%s\t%s\t%zu\t%lld\n", op, fd, one ? one : "", two ? two : "", size,
                          (long long)at);
    struct iovec pieces[2] = {{head, (size_t)length}, {(void *)data, size}};
    if (REAL(writev)(log_fd, pieces, size ? 2 : 1) < 0) abort();
}

void layer_mark(const char *text) {
    pthread_mutex_lock(&guard);
    record("mark", -1, text, NULL, NULL, 0, 0);
    pthread_mutex_unlock(&guard);
}

/* ---- helpers ---- */

static int absolute(int folder, const char *path, char *into) {
    if (path[0] == '/' || folder == AT_FDCWD) {
        if (strlen(path) >= PATH_MAX) return 0;
        strcpy(into, path);
        return 1;
    }
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, into, PATH_MAX - 1);
    if (length < 0 || (size_t)length + strlen(path) + 2 > PATH_MAX) return 0;
    into[length] = '/';
    strcpy(into + length + 1, path);
    return 1;
}

static int ours(const char *path) {
    return root_length && strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || !path[root_length]);
}

/* 1: this call must fail with errno set; 2: come short; 0: go on (afterwards: call `after`). */
static int strike(void) {
    long number = counted++;
    if (strike_kind == TORN && strike_at >= 0 && number == strike_at + 1) { /* the write that came short goes on, and fails */
        errno = strike_errno;
        return 1;
    }
    int hit = strike_at >= 0 && (number == strike_at || (strike_for_good && number > strike_at));
    if (!hit) return 0;
    if (strike_kind == KILL_BEFORE) kill(getpid(), SIGKILL), pause();
    if (strike_kind == FAIL) {
        errno = strike_errno;
        return 1;
    }
    return strike_kind == SHORT || strike_kind == TORN ? 2 : 0;
}

static void after(void) {
    if (strike_at >= 0 && strike_kind == KILL_AFTER && counted == strike_at + 1) kill(getpid(), SIGKILL), pause();
}

/* ---- the calls ---- */

static int opened(int folder, const char *path, int flags, mode_t mode) {
    __typeof__(&openat64) real = REAL(openat64);
    char full[PATH_MAX];
    if (!root_length || !absolute(folder, path, full) || !ours(full)) return real(folder, path, flags, mode);
    pthread_mutex_lock(&guard);
    struct stat seen;
    int existed = stat(full, &seen) == 0, makes = (flags & O_CREAT) && !existed, cuts = (flags & O_TRUNC) && existed;
    if ((makes || cuts) && strike() == 1) {
        pthread_mutex_unlock(&guard);
        return -1;
    }
    int fd = real(folder, path, flags, mode), error = errno;
    if (fd >= 0 && fd < MAX_FD) {
        watched[fd] = 1;
        record(makes ? "create" : cuts ? "cut" : "open", fd, full, (flags & O_APPEND) ? "a" : "", NULL, 0, 0);
    } else if (makes || cuts)
        record("refused", -1, full, NULL, NULL, 0, 0);
    if (makes || cuts) after();
    pthread_mutex_unlock(&guard);
    errno = error;
    return fd;
}

#define MODE(flags, last)                  \
    mode_t mode = 0;                       \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list list;                      \
        va_start(list, last);              \
        mode = va_arg(list, mode_t);       \
        va_end(list);                      \
    }

int open(const char *path, int flags, ...) { MODE(flags, flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags, flags) return opened(AT_FDCWD, path, flags, mode); }
int openat(int f, const char *path, int flags, ...) { MODE(flags, flags) return opened(f, path, flags, mode); }
int openat64(int f, const char *path, int flags, ...) { MODE(flags, flags) return opened(f, path, flags, mode); }

int close(int fd) {
    if (fd >= 0 && fd < MAX_FD && watched[fd]) {
        pthread_mutex_lock(&guard);
        watched[fd] = 0;
        record("close", fd, NULL, NULL, NULL, 0, 0);
        pthread_mutex_unlock(&guard);
    }
    return REAL(close)(fd);
}

static ssize_t written(int fd, const void *data, size_t size, off_t at) {
    ssize_t done;
    if (fd < 0 || fd >= MAX_FD || !watched[fd])
        return at < 0 ? REAL(write)(fd, data, size) : REAL(pwrite64)(fd, data, size, at);
    pthread_mutex_lock(&guard);
    int how = strike();
    if (how == 1) {
        pthread_mutex_unlock(&guard);
        return -1;
    }
    if (how == 2) size = size > 1 ? size / 2 : size;
    done = at < 0 ? REAL(write)(fd, data, size) : REAL(pwrite64)(fd, data, size, at);
    int error = errno;
    if (done > 0) {
        off_t now = at >= 0 ? at : lseek(fd, 0, SEEK_CUR) - done;
        record("write", fd, NULL, NULL, data, (size_t)done, now);
    }
    after();
    pthread_mutex_unlock(&guard);
    errno = error;
    return done;
}

ssize_t write(int fd, const void *data, size_t size) { return written(fd, data, size, -1); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return written(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return written(fd, data, size, at); }

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    if (fd < 0 || fd >= MAX_FD || !watched[fd]) return REAL(writev)(fd, pieces, count);
    ssize_t total = 0;
    for (int k = 0; k < count; k++) {
        ssize_t done = written(fd, pieces[k].iov_base, pieces[k].iov_len, -1);
        if (done < 0) return total ? total : -1;
        total += done;
        if ((size_t)done < pieces[k].iov_len) break;
    }
    return total;
}

static int synced(int fd, int (*real)(int)) {
    if (fd < 0 || fd >= MAX_FD || !watched[fd]) return real(fd);
    pthread_mutex_lock(&guard);
    int result = -1;
    if (strike() != 1) {
        result = real(fd);
        record(result ? "refused" : "sync", fd, NULL, NULL, NULL, 0, 0);
        after();
    }
    pthread_mutex_unlock(&guard);
    return result;
}

int fsync(int fd) { return synced(fd, REAL(fsync)); }
int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }

/* Calls that change names: do `call` unless struck, and record it as `op`. */
#define NAMES(op, one, two, call)                         \
    {                                                     \
        int result = -1, error;                           \
        pthread_mutex_lock(&guard);                       \
        if (strike() == 1) {                              \
            pthread_mutex_unlock(&guard);                 \
            return -1;                                    \
        }                                                 \
        result = (call), error = errno;                   \
        record(result ? "refused" : op, -1, one, two, NULL, 0, 0); \
        after();                                          \
        pthread_mutex_unlock(&guard);                     \
        errno = error;                                    \
        return result;                                    \
    }

int renameat2(int f, const char *from, int t, const char *to, unsigned int flags) {
    char one[PATH_MAX], two[PATH_MAX];
    if (!root_length || !absolute(f, from, one) || !absolute(t, to, two) || !ours(two))
        return REAL(renameat2)(f, from, t, to, flags);
    NAMES("rename", one, two, REAL(renameat2)(f, from, t, to, flags))
}
int renameat(int f, const char *from, int t, const char *to) { return renameat2(f, from, t, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int linkat(int f, const char *from, int t, const char *to, int flags) {
    char one[PATH_MAX], two[PATH_MAX];
    if (!root_length || !absolute(f, from, one) || !absolute(t, to, two) || !ours(two))
        return REAL(linkat)(f, from, t, to, flags);
    NAMES("link", one, two, REAL(linkat)(f, from, t, to, flags))
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int f, const char *path, int flags) {
    char full[PATH_MAX];
    if (!root_length || !absolute(f, path, full) || !ours(full)) return REAL(unlinkat)(f, path, flags);
    NAMES("unlink", full, NULL, REAL(unlinkat)(f, path, flags))
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int f, const char *path, mode_t mode) {
    char full[PATH_MAX];
    if (!root_length || !absolute(f, path, full) || !ours(full)) return REAL(mkdirat)(f, path, mode);
    NAMES("mkdir", full, NULL, REAL(mkdirat)(f, path, mode))
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

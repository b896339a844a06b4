/* A disk that fails on demand: preloaded, it counts the calls that touch one folder, and strikes at the n-th.

   Arrow and DuckDB write with native code, which nothing in Python can watch; all of it goes through the C library.
   Calls about other paths, and all calls before `faults_arm`, pass through untouched. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* What a call does; a mask of them says which calls count. */
enum { CREATE = 1, WRITE = 2, SYNC = 4, NAME = 8, REMOVE = 16, READ = 32 };

/* What happens at the n-th call that counts. */
enum {
  COUNT,      /* nothing */
  KILL,       /* the process is gone before the call */
  FAIL,       /* the call fails */
  FAIL_ON,    /* the call fails, and all that count after it */
  SHORT,      /* half is written, and the rest can be */
  SHORT_KILL, /* half is written, and the process is gone at the next call */
  SHORT_FAIL  /* half is written, and the next call fails, with all that count after it */
};

static char folder[PATH_MAX];
static size_t folder_length;
static int mask, how, error_number;
static long strike_at;
static atomic_long calls;

void faults_arm(const char *path, int counted, int kind, int error, long at) {
  snprintf(folder, sizeof folder, "%s", path);
  mask = counted, how = kind, error_number = error, strike_at = at;
  atomic_store(&calls, 0);
  folder_length = strlen(folder);
}

long faults_disarm(void) {
  folder_length = 0;
  return atomic_load(&calls);
}

static int inside(const char *path) {
  return folder_length && !strncmp(path, folder, folder_length) &&
         (path[folder_length] == '/' || path[folder_length] == 0);
}

static int open_inside(int descriptor) {
  if (!folder_length) return 0;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return inside(path);
}

static int inside_at(int directory, const char *path) {
  if (!folder_length || !path) return 0;
  return path[0] == '/' ? inside(path) : directory != AT_FDCWD && open_inside(directory);
}

static _Noreturn void die(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

enum { GO_ON, BREAK, HALVE };

/* What is to become of a call below the folder. */
static int verdict(int kind) {
  if (!(kind & mask)) return GO_ON;
  long call = atomic_fetch_add(&calls, 1) + 1;
  if (!strike_at || call < strike_at) return GO_ON;
  switch (how) {
    case KILL: die();
    case FAIL: return call == strike_at ? BREAK : GO_ON;
    case FAIL_ON: return BREAK;
    case SHORT: return call == strike_at && kind == WRITE ? HALVE : GO_ON;
    case SHORT_KILL:
      if (call > strike_at) die();
      return kind == WRITE ? HALVE : GO_ON;
    case SHORT_FAIL: return call > strike_at ? BREAK : kind == WRITE ? HALVE : GO_ON;
  }
  return GO_ON;
}

#define REAL(result, name, ...)                                      \
  static result (*real)(__VA_ARGS__);                                \
  if (!real) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define STRIKE(where, kind)                                          \
  if ((where) && verdict(kind) == BREAK) return errno = error_number, -1

static int opening(int flags) {
  return flags & (O_CREAT | O_TRUNC) || (flags & O_ACCMODE) != O_RDONLY ? CREATE : READ;
}

#define MODE(mode, flags)                                            \
  mode_t mode = 0;                                                   \
  if ((flags) & (O_CREAT | __O_TMPFILE)) {                           \
    va_list rest;                                                    \
    va_start(rest, flags);                                           \
    mode = va_arg(rest, mode_t);                                     \
    va_end(rest);                                                    \
  }

#define OPEN(name)                                                   \
  int name(const char *path, int flags, ...) {                       \
    REAL(int, name, const char *, int, ...);                         \
    MODE(mode, flags)                                                \
    STRIKE(inside(path), opening(flags));                            \
    return real(path, flags, mode);                                  \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                 \
  int name(int directory, const char *path, int flags, ...) {        \
    REAL(int, name, int, const char *, int, ...);                    \
    MODE(mode, flags)                                                \
    STRIKE(inside_at(directory, path), opening(flags));              \
    return real(directory, path, flags, mode);                       \
  }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int descriptor, const void *data, size_t size) {
  REAL(ssize_t, write, int, const void *, size_t);
  int found = open_inside(descriptor) ? verdict(WRITE) : GO_ON;
  if (found == BREAK) return errno = error_number, -1;
  return real(descriptor, data, found == HALVE && size > 1 ? size / 2 : size);
}

#define PWRITE(name, offset_type)                                                          \
  ssize_t name(int descriptor, const void *data, size_t size, offset_type offset) {        \
    REAL(ssize_t, name, int, const void *, size_t, offset_type);                           \
    int found = open_inside(descriptor) ? verdict(WRITE) : GO_ON;                          \
    if (found == BREAK) return errno = error_number, -1;                                   \
    return real(descriptor, data, found == HALVE && size > 1 ? size / 2 : size, offset);   \
  }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t read(int descriptor, void *data, size_t size) {
  REAL(ssize_t, read, int, void *, size_t);
  STRIKE(open_inside(descriptor), READ);
  return real(descriptor, data, size);
}

#define PREAD(name, offset_type)                                                           \
  ssize_t name(int descriptor, void *data, size_t size, offset_type offset) {              \
    REAL(ssize_t, name, int, void *, size_t, offset_type);                                 \
    STRIKE(open_inside(descriptor), READ);                                                 \
    return real(descriptor, data, size, offset);                                           \
  }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

#define SYNCING(name)                                                \
  int name(int descriptor) {                                         \
    REAL(int, name, int);                                            \
    STRIKE(open_inside(descriptor), SYNC);                           \
    return real(descriptor);                                         \
  }
SYNCING(fsync)
SYNCING(fdatasync)

#define TWO_PATHS(name)                                              \
  int name(const char *from, const char *to) {                       \
    REAL(int, name, const char *, const char *);                     \
    STRIKE(inside(from) || inside(to), NAME);                        \
    return real(from, to);                                           \
  }
TWO_PATHS(rename)
TWO_PATHS(link)

int renameat(int from_at, const char *from, int to_at, const char *to) {
  REAL(int, renameat, int, const char *, int, const char *);
  STRIKE(inside_at(from_at, from) || inside_at(to_at, to), NAME);
  return real(from_at, from, to_at, to);
}

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned int flags) {
  REAL(int, renameat2, int, const char *, int, const char *, unsigned int);
  STRIKE(inside_at(from_at, from) || inside_at(to_at, to), NAME);
  return real(from_at, from, to_at, to, flags);
}

int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
  REAL(int, linkat, int, const char *, int, const char *, int);
  STRIKE(inside_at(from_at, from) || inside_at(to_at, to), NAME);
  return real(from_at, from, to_at, to, flags);
}

int mkdir(const char *path, mode_t mode) {
  REAL(int, mkdir, const char *, mode_t);
  STRIKE(inside(path), NAME);
  return real(path, mode);
}

int mkdirat(int directory, const char *path, mode_t mode) {
  REAL(int, mkdirat, int, const char *, mode_t);
  STRIKE(inside_at(directory, path), NAME);
  return real(directory, path, mode);
}

int unlink(const char *path) {
  REAL(int, unlink, const char *);
  STRIKE(inside(path), REMOVE);
  return real(path);
}

int unlinkat(int directory, const char *path, int flags) {
  REAL(int, unlinkat, int, const char *, int);
  STRIKE(inside_at(directory, path), REMOVE);
  return real(directory, path, flags);
}

int rmdir(const char *path) {
  REAL(int, rmdir, const char *);
  STRIKE(inside(path), REMOVE);
  return real(path);
}

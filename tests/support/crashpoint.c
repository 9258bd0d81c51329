/* Counts the calls of the C library that touch files below one folder or send to a socket, and at the n-th does something bad.
 *
 * Preloaded into a process that arms it (process_harness.py): cp_arm(folder, n, action, error, sticky, looking, sockets).
 *   action "count" nothing but counting   "kill" SIGKILL before   "killafter" SIGKILL after   "torn" half of a write, then SIGKILL
 *          "error" the call fails with `error`, once or (sticky) from then on
 *          "power", "powerafter" the ext4 below the folder is shut down with its journal unwritten (nothing unsynced arrived)
 *          "powerlog", "powerlogafter" its journal is written first (names arrived, unsynced bytes did not: the hardest)
 *   looking 1: calls that only look (open for reading or listing, read, receive) count too.
 *   sockets 1: what is sent counts too; a torn send arrives as its first half.
 * cp_shift_clock(seconds) makes the clock of the day wrong.
 * Not seen: stdio inside libc, raw system calls, io_uring; our stores use none of them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { GO, FAIL, THEN_DIE, TEAR };
static char folder[4096], action[16] = "count";
static size_t folder_length;
static long count, at;
static int error, sticky, looking, sockets;
static long shift;

void cp_arm(const char *where, long n, const char *what, int number, int again, int look, int net) {
  snprintf(folder, sizeof folder, "%s", where);
  snprintf(action, sizeof action, "%s", what);
  at = n; error = number; sticky = again; looking = look; sockets = net; count = 0;
  folder_length = strlen(folder);
}
long cp_count(void) { return count; }
void cp_shift_clock(long seconds) { shift = seconds; }

static void path_of(int fd, char *out) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, out, 4095L);
  out[n > 0 ? n : 0] = 0;
}
static void path_at(int dfd, const char *path, char *out) {
  char above[4096];
  if (path[0] == '/') { snprintf(out, 8192, "%s", path); return; }
  if (dfd != AT_FDCWD) path_of(dfd, above); else if (!getcwd(above, sizeof above)) above[0] = 0;
  snprintf(out, 8192, "%s/%s", above, path);
}
static void die(void) {
  if (!strncmp(action, "power", 5)) { /* EXT4_IOC_SHUTDOWN: 1 writes the journal first, 2 drops it too */
    uint32_t how = strstr(action, "log") ? 1 : 2;
    int fd = syscall(SYS_openat, AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0);
    ioctl(fd, 0x8004587dUL, &how);
  }
  kill(getpid(), SIGKILL);
  for (;;) pause();
}
static int hit(const char *path, int is_write, int only_looks) {
  if (only_looks && !looking) return GO;
  int below = folder_length && !strncmp(path, folder, folder_length) && (!path[folder_length] || path[folder_length] == '/');
  if (!below && !(sockets && !strncmp(path, "socket:", 7))) return GO;
  long n = __sync_add_and_fetch(&count, 1);
  if (!strcmp(action, "count") || !at || (sticky ? n < at : n != at)) return GO;
  if (!strcmp(action, "error")) { errno = error; return FAIL; }
  if (!strcmp(action, "kill") || !strcmp(action, "power") || !strcmp(action, "powerlog")) die();
  return !strcmp(action, "torn") && is_write ? TEAR : THEN_DIE;
}
static void after(int what) { if (what >= THEN_DIE) die(); }
#define REAL(ret, name, ...) static ret (*real)(__VA_ARGS__); if (!real) real = (ret (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int do_open(int dfd, const char *path, int flags, mode_t mode) {
  char full[8192];
  path_at(dfd, path, full);
  int what = hit(full, 0, !(flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)));
  if (what == FAIL) return -1;
  int fd = syscall(SYS_openat, dfd, path, flags, mode);
  after(what);
  return fd;
}
#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }
int open(const char *p, int flags, ...) { MODE return do_open(AT_FDCWD, p, flags, mode); }
int open64(const char *p, int flags, ...) { MODE return do_open(AT_FDCWD, p, flags | O_LARGEFILE, mode); }
int openat(int d, const char *p, int flags, ...) { MODE return do_open(d, p, flags, mode); }
int openat64(int d, const char *p, int flags, ...) { MODE return do_open(d, p, flags | O_LARGEFILE, mode); }

#define TRANSFER(name, given, passed, fd, n, writes) ssize_t name given { \
  REAL(ssize_t, #name, TYPES); char path[4096]; int what = GO; \
  if ((folder_length || sockets) && fd > 2) { path_of(fd, path); what = hit(path, writes, !writes); } \
  if (what == FAIL) return -1; \
  if (what == TEAR) n = (n + 1) / 2; \
  ssize_t done = real passed; after(what); return done; }
#define TYPES int, const void *, size_t
TRANSFER(write, (int fd, const void *b, size_t n), (fd, b, n), fd, n, 1)
#undef TYPES
#define TYPES int, const void *, size_t, off64_t
TRANSFER(pwrite64, (int fd, const void *b, size_t n, off64_t o), (fd, b, n, o), fd, n, 1)
#undef TYPES
#define TYPES int, const struct iovec *, int
TRANSFER(writev, (int fd, const struct iovec *v, int n), (fd, v, n), fd, n, 1)
#undef TYPES
#define TYPES int, const struct iovec *, int, off64_t
TRANSFER(pwritev64, (int fd, const struct iovec *v, int n, off64_t o), (fd, v, n, o), fd, n, 1)
TRANSFER(preadv64, (int fd, const struct iovec *v, int n, off64_t o), (fd, v, n, o), fd, n, 0)
#undef TYPES
#define TYPES int, void *, size_t
TRANSFER(read, (int fd, void *b, size_t n), (fd, b, n), fd, n, 0)
#undef TYPES
#define TYPES int, void *, size_t, off64_t
TRANSFER(pread64, (int fd, void *b, size_t n, off64_t o), (fd, b, n, o), fd, n, 0)
#undef TYPES
#define TYPES int, int, off64_t *, size_t
TRANSFER(sendfile64, (int fd, int i, off64_t *o, size_t n), (fd, i, o, n), fd, n, 1)
#undef TYPES
#define TYPES int, off64_t *, int, off64_t *, size_t, unsigned
TRANSFER(copy_file_range, (int i, off64_t *p, int fd, off64_t *o, size_t n, unsigned f), (i, p, fd, o, n, f), fd, n, 1)
#undef TYPES
ssize_t pwrite(int fd, const void *b, size_t n, off_t o) { return pwrite64(fd, b, n, o); }
ssize_t pwritev(int fd, const struct iovec *v, int n, off_t o) { return pwritev64(fd, v, n, o); }
ssize_t pread(int fd, void *b, size_t n, off_t o) { return pread64(fd, b, n, o); }
ssize_t preadv(int fd, const struct iovec *v, int n, off_t o) { return preadv64(fd, v, n, o); }
ssize_t sendfile(int fd, int i, off_t *o, size_t n) { return sendfile64(fd, i, o, n); }

#define TYPES int, const void *, size_t, int
TRANSFER(send, (int fd, const void *b, size_t n, int f), (fd, b, n, f), fd, n, 1)
#undef TYPES
#define TYPES int, const void *, size_t, int, const struct sockaddr *, socklen_t
TRANSFER(sendto, (int fd, const void *b, size_t n, int f, const struct sockaddr *a, socklen_t l), (fd, b, n, f, a, l), fd, n, 1)
#undef TYPES
#define TYPES int, void *, size_t, int
TRANSFER(recv, (int fd, void *b, size_t n, int f), (fd, b, n, f), fd, n, 0)
#undef TYPES

int clock_gettime(clockid_t clock, struct timespec *now) {
  int done = syscall(SYS_clock_gettime, clock, now);
  if (!done && clock == CLOCK_REALTIME) now->tv_sec += shift;
  return done;
}

#define OF_HANDLE(name, given, passed, types) int name given { \
  REAL(int, #name, types); char path[4096]; int what = GO; \
  if (folder_length && fd > 2) { path_of(fd, path); what = hit(path, 0, 0); } \
  if (what == FAIL) return -1; \
  int done = real passed; after(what); return done; }
OF_HANDLE(fsync, (int fd), (fd), int)
OF_HANDLE(fdatasync, (int fd), (fd), int)
#define TWO int, off64_t
OF_HANDLE(ftruncate64, (int fd, off64_t n), (fd, n), TWO)
#undef TWO
#define TWO int, mode_t
OF_HANDLE(fchmod, (int fd, mode_t m), (fd, m), TWO)
int ftruncate(int fd, off_t n) { return ftruncate64(fd, n); }

#define OF_NAME(dfd, path, call) char full[8192]; path_at(dfd, path, full); int what = hit(full, 0, 0); \
  if (what == FAIL) { return -1; } int done = call; after(what); return done;
int renameat2(int x, const char *a, int y, const char *b, unsigned f) { OF_NAME(y, b, syscall(SYS_renameat2, x, a, y, b, f)) }
int renameat(int x, const char *a, int y, const char *b) { return renameat2(x, a, y, b, 0); }
int rename(const char *a, const char *b) { return renameat2(AT_FDCWD, a, AT_FDCWD, b, 0); }
int unlinkat(int d, const char *a, int f) { OF_NAME(d, a, syscall(SYS_unlinkat, d, a, f)) }
int unlink(const char *a) { return unlinkat(AT_FDCWD, a, 0); }
int rmdir(const char *a) { return unlinkat(AT_FDCWD, a, AT_REMOVEDIR); }
int mkdirat(int d, const char *a, mode_t m) { OF_NAME(d, a, syscall(SYS_mkdirat, d, a, m)) }
int mkdir(const char *a, mode_t m) { return mkdirat(AT_FDCWD, a, m); }
int linkat(int x, const char *a, int y, const char *b, int f) { OF_NAME(y, b, syscall(SYS_linkat, x, a, y, b, f)) }
int link(const char *a, const char *b) { return linkat(AT_FDCWD, a, AT_FDCWD, b, 0); }
int symlinkat(const char *a, int d, const char *b) { OF_NAME(d, b, syscall(SYS_symlinkat, a, d, b)) }
int symlink(const char *a, const char *b) { return symlinkat(a, AT_FDCWD, b); }

/* Stands in for Yama where the kernel has none: refuses what Yama would refuse, by the value in
   the file YAMA_FILE. 1: only descendants may be traced; 2: only with CAP_SYS_PTRACE. Loaded with
   LD_PRELOAD into the program under test, and into the tools that it starts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int real_open(const char *path, int flags, mode_t mode) {
  static int (*next)(int, const char *, int, ...);
  if (!next) next = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat");
  return next(AT_FDCWD, path, flags, mode);
}

static long number_in(const char *path, const char *field, int base) {
  char text[4096];
  int descriptor = real_open(path, O_RDONLY, 0);
  ssize_t size = descriptor < 0 ? -1 : read(descriptor, text, sizeof text - 1);
  if (descriptor >= 0) close(descriptor);
  if (size < 0) return 0;
  text[size] = 0;
  const char *at = *field ? strstr(text, field) : text;
  return at ? strtol(at + strlen(field), NULL, base) : 0;
}

static int refused(long pid) {
  const char *file = getenv("YAMA_FILE");
  long scope = file ? number_in(file, "", 10) : 0;
  if (!scope || pid == getpid()) return 0;
  if (number_in("/proc/self/status", "CapEff:", 16) >> 19 & 1) return 0;
  if (scope > 1) return 1;
  char path[64];
  for (int depth = 0; pid > 1 && depth < 64; depth++) {
    if (pid == getpid()) return 0;
    snprintf(path, sizeof path, "/proc/%ld/status", pid);
    pid = number_in(path, "PPid:", 10);
  }
  return 1;
}

static int opened(const char *path, int flags, mode_t mode) {
  long pid;
  char rest[8] = "";
  if (path && sscanf(path, "/proc/%ld/%7s", &pid, rest) == 2 && !strcmp(rest, "mem") && refused(pid)) {
    errno = EACCES;
    return -1;
  }
  return real_open(path, flags, mode);
}

#define OPEN(name)                                                  \
  int name(const char *path, int flags, ...) {                      \
    va_list more;                                                   \
    va_start(more, flags);                                          \
    mode_t mode = va_arg(more, int);                                \
    va_end(more);                                                   \
    return opened(path, flags, mode);                               \
  }
OPEN(open)
OPEN(open64)

ssize_t process_vm_readv(pid_t pid, const struct iovec *mine, unsigned long count,
                         const struct iovec *theirs, unsigned long their_count,
                         unsigned long flags) {
  ssize_t (*next)(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long,
                  unsigned long) = dlsym(RTLD_NEXT, "process_vm_readv");
  if (refused(pid)) {
    errno = EPERM;
    return -1;
  }
  return next(pid, mine, count, theirs, their_count, flags);
}

long ptrace(long request, long pid, void *address, void *data) {
  long (*next)(long, long, void *, void *) = dlsym(RTLD_NEXT, "ptrace");
  if (refused(pid)) {
    errno = EPERM;
    return -1;
  }
  return next(request, pid, address, data);
}

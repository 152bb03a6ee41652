// Preloaded into a process (LD_PRELOAD): the N-th operation on a file or folder of a checkpoint fails, as a disk does or as a machine
// that stops. FAIL_AT=N, counted over write, fsync, rename and mkdir of paths with "checkpoint_" in them; FAIL_WITH=ENOSPC | EIO: that
// error from then on; SHORT: half of what is written is, which is legal; STOP: half of it is written and the process ends at once.
// FAIL_RANK: only in the process whose RANK is that. FAIL_COUNT=FILE: nothing fails, and the number of operations goes into FILE.RANK.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long num_operations;

static int is_checkpoint(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return strstr(path, "checkpoint_") != NULL;
}

static int is_mine(void) {
  const char *rank = getenv("RANK"), *chosen = getenv("FAIL_RANK");
  return chosen == NULL || rank == NULL || strcmp(rank, chosen) == 0;
}

// 0: as usual; 1: now or from now on.
static int fails(const char* with) {
  const char *at = getenv("FAIL_AT"), *kind = getenv("FAIL_WITH");
  if (at == NULL || kind == NULL || !is_mine() || strcmp(kind, with) != 0) return 0;
  const long number = num_operations, limit = atol(at);
  return strcmp(with, "ENOSPC") == 0 || strcmp(with, "EIO") == 0 ? number >= limit : number == limit;
}

static int error_now(void) {
  if (fails("ENOSPC")) return ENOSPC;
  if (fails("EIO")) return EIO;
  return 0;
}

static void count(void) {
  ++num_operations;
  const char *file = getenv("FAIL_COUNT"), *rank = getenv("RANK");
  if (file == NULL) return;
  char path[4096];
  snprintf(path, sizeof(path), "%s.%s", file, rank == NULL ? "0" : rank);
  FILE* out = fopen(path, "w");
  if (out == NULL) return;
  fprintf(out, "%ld\n", (long)num_operations);
  fclose(out);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void* data, size_t size) {
  if (!is_checkpoint(fd)) return REAL(write)(fd, data, size);
  count();
  const int number = error_now();
  if (number != 0) {
    errno = number;
    return -1;
  }
  if (fails("SHORT") && size > 1) return REAL(write)(fd, data, size / 2);
  if (fails("STOP")) {
    REAL(write)(fd, data, size / 2);
    _exit(137);
  }
  return REAL(write)(fd, data, size);
}

static int before(void) {
  count();
  if (fails("STOP")) _exit(137);
  const int number = error_now();
  if (number != 0) errno = number;
  return number;
}

int fsync(int fd) { return is_checkpoint(fd) && before() ? -1 : REAL(fsync)(fd); }
int rename(const char* from, const char* to) {
  return strstr(to, "checkpoint_") != NULL && before() ? -1 : REAL(rename)(from, to);
}
int mkdir(const char* path, mode_t mode) {
  return strstr(path, "checkpoint_") != NULL && before() ? -1 : REAL(mkdir)(path, mode);
}

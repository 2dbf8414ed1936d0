/* SPDX-License-Identifier: MIT
 * file_sum.c - sums of files by what stat() says of them. */
#include "lab/store/file_sum.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "lab/store/sha256.h"

enum { ENTRIES = 64 };

typedef struct identity {
  uint64_t device, inode, size;
  int64_t mtime_s, mtime_ns, ctime_s, ctime_ns;
} identity;

typedef struct entry {
  identity file;
  char hex[65];
} entry;

/* Round robin: a run has a dozen plugins. */
static struct {
  pthread_mutex_t lock;
  entry entries[ENTRIES];
  uint64_t reads; /* entries ever written */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int identify(const char *path, identity *out) {
  struct stat st;
  memset(out, 0, sizeof *out); /* compared by memcmp */
  if (stat(path, &st) != 0) return 0;
  out->device = (uint64_t)st.st_dev;
  out->inode = (uint64_t)st.st_ino;
  out->size = (uint64_t)st.st_size;
  out->mtime_s = st.st_mtim.tv_sec;
  out->mtime_ns = st.st_mtim.tv_nsec;
  out->ctime_s = st.st_ctim.tv_sec;
  out->ctime_ns = st.st_ctim.tv_nsec;
  return 1;
}

static const entry *find(const identity *file) {
  const uint64_t n = table.reads < ENTRIES ? table.reads : ENTRIES;
  for (uint64_t i = 0; i < n; ++i) {
    if (memcmp(&table.entries[i].file, file, sizeof *file) == 0) return &table.entries[i];
  }
  return NULL;
}

int32_t bs_file_sum(const char *path, char out_hex[65], bs_error *err) {
  identity before, after;
  const int known = identify(path, &before);
  int32_t rc = BS_OK;
  pthread_mutex_lock(&table.lock);
  const entry *e = known ? find(&before) : NULL;
  if (e != NULL) {
    memcpy(out_hex, e->hex, sizeof e->hex);
  } else {
    rc = bs_sha256_file(path, out_hex, err);
    /* A file that changed while it was read has a sum of neither state: given, but not kept. */
    if (rc == BS_OK && known && identify(path, &after) && memcmp(&before, &after, sizeof after) == 0) {
      entry *kept = &table.entries[table.reads % ENTRIES];
      kept->file = before;
      memcpy(kept->hex, out_hex, sizeof kept->hex);
      ++table.reads;
    }
  }
  pthread_mutex_unlock(&table.lock);
  return rc;
}

uint64_t bs_file_sum_reads(void) {
  pthread_mutex_lock(&table.lock);
  const uint64_t reads = table.reads;
  pthread_mutex_unlock(&table.lock);
  return reads;
}

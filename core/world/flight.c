/* SPDX-License-Identifier: MIT
 *
 * flight.c - see flight.h. The file is mapped over one region of the process, which stays mapped: anonymous
 * memory replaces the file when it is closed. So a rank inside a call that never returned can still write.
 */
#include "core/world/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/error.h"

_Static_assert(sizeof(bs_flight_slot) == 32, "a slot of the file");
_Static_assert(offsetof(bs_flight_file, slot) == 64, "the file's head");

_Atomic(bs_flight_file *) bs_flight_now;
static bs_flight_file *region; /* reserved once; only the thread that opens and closes runs touches it */
/* A cache line each: ranks count at the same time. */
static struct { _Alignas(64) _Atomic uint32_t seq; } next[BS_FLIGHT_RANKS];

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int reserve(void) {
  if (region != NULL) return 1;
  void *at = mmap(NULL, sizeof *region, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return 0;
  region = at;
  return 1;
}

static int32_t not_twice(bs_error *err) {
  return atomic_load(&bs_flight_now) == NULL
             ? BS_OK
             : bs_error_set(err, BS_BUSY, "BS-FLIGHT", "another run of this process is recorded");
}

/* In the region's place, from the file; 0, or errno. */
static int map(int fd) {
  if (!reserve()) return errno;
  return mmap(region, sizeof *region, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED
             ? errno
             : 0;
}

static void begin(void) {
  for (uint32_t r = 0; r < BS_FLIGHT_RANKS; ++r) atomic_store(&next[r].seq, 0);
  atomic_store(&bs_flight_now, region);
}

int32_t bs_flight_open(int folder_fd, bs_error *err) {
  const int32_t rc = not_twice(err);
  if (rc != BS_OK) return rc;
  const int fd = openat(folder_fd, "flight", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) return bs_error_errno(err, BS_IO, "BS-FLIGHT", errno, "cannot make the flight recorder");
  /* Its blocks exist before it is mapped: a full disk is an error here, and not a signal later. */
  int bad = posix_fallocate(fd, 0, (off_t)sizeof *region);
  if (bad == 0) bad = map(fd);
  close(fd);
  if (bad != 0) {
    unlinkat(folder_fd, "flight", 0);
    return bs_error_errno(err, BS_IO, "BS-FLIGHT", bad, "cannot map the flight recorder");
  }
  region->version = 1;
  region->ranks = BS_FLIGHT_RANKS;
  region->slots = BS_FLIGHT_SLOTS;
  region->slot_bytes = sizeof(bs_flight_slot);
  region->pid = getpid();
  region->ns = now_ns();
  memcpy(region->magic, "BSFLIGHT", sizeof region->magic);
  begin();
  return BS_OK;
}

int32_t bs_flight_join(const char *path, bs_error *err) {
  char magic[8] = "";
  struct stat st;
  const int32_t rc = not_twice(err);
  if (rc != BS_OK) return rc;
  const int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return bs_error_errno(err, BS_IO, "BS-FLIGHT", errno, "cannot open the flight recorder %.200s", path);
  const int whole = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == (off_t)sizeof *region &&
                    read(fd, magic, sizeof magic) == (ssize_t)sizeof magic &&
                    memcmp(magic, "BSFLIGHT", 8) == 0;
  const int bad = whole ? map(fd) : 0;
  close(fd);
  if (!whole) return bs_error_set(err, BS_CORRUPT, "BS-FLIGHT", "%.200s is no flight recorder", path);
  if (bad != 0) return bs_error_errno(err, BS_IO, "BS-FLIGHT", bad, "cannot map the flight recorder");
  begin();
  return BS_OK;
}

void bs_flight_close(void) {
  if (atomic_exchange(&bs_flight_now, NULL) == NULL) return;
  (void)mmap(region, sizeof *region, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* Words between processes (lab/peers) are no collectives of a run: who joins later has heard fewer of them.
 */
bs_flight_slot *bs_flight_enter(bs_flight_file *file, uint32_t rank, const bs_coll_call *call) {
  if ((call->flags & BS_COLL_CONTROL) != 0) return NULL;
  const uint32_t seq = atomic_fetch_add_explicit(&next[rank].seq, 1, memory_order_relaxed);
  bs_flight_slot *slot = &file->slot[rank][seq % BS_FLIGHT_SLOTS];
  const char *site = call->site != NULL ? call->site : "";
  const size_t length = strlen(site), kept = length < BS_FLIGHT_SITE ? length : BS_FLIGHT_SITE;
  slot->ns = now_ns();
  slot->count = call->count;
  slot->seq = seq;
  slot->kind = (uint8_t)call->kind;
  slot->dtype = (uint16_t)call->dtype_in;
  memset(slot->site, 0, sizeof slot->site);
  memcpy(slot->site, site + (length - kept), kept);
  slot->state = BS_FLIGHT_ENTERED;
  return slot;
}

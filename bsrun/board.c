/* SPDX-License-Identifier: MIT
 * board.c - see board.h. */
#include "bsrun/board.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x6472616f62736201)

static size_t bytes_of(uint64_t ranks) {
  return sizeof(bsrun_board) + (size_t)ranks * sizeof(bsrun_row);
}

/* "device:inode:boot". */
static void identity(const struct stat *st, char out[128]) {
  char boot[64] = "";
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (f != NULL) {
    if (fgets(boot, sizeof boot, f) == NULL) boot[0] = '\0';
    fclose(f);
  }
  boot[strcspn(boot, "\n")] = '\0';
  snprintf(out, 128, "%llx:%llx:%s", (unsigned long long)st->st_dev, (unsigned long long)st->st_ino, boot);
}

bsrun_board *bsrun_board_make(uint32_t ranks, unsigned flags, int *out_fd) {
  char id[128];
  struct stat st;
  const size_t bytes = bytes_of(ranks);
  const int fd = (int)syscall(SYS_memfd_create, "blockshock-board", flags);
  *out_fd = fd;
  if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || fstat(fd, &st) != 0) return NULL;
  bsrun_board *board = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (board == MAP_FAILED) return NULL;
  board->ranks = ranks;
  board->magic = MAGIC;
  identity(&st, id);
  setenv(BSRUN_BOARD_ID, id, 1); /* of the ranks, who inherit it */
  return board;
}

/* 1: the file is the one that the launcher has made. */
static int is_told(const struct stat *st, int64_t ranks) {
  char id[128];
  const char *told = getenv(BSRUN_BOARD_ID);
  if (told == NULL || ranks < 1 || ranks > (int64_t)BSRUN_BOARD_RANKS || !S_ISREG(st->st_mode)) return 0;
  identity(st, id);
  return strcmp(id, told) == 0 && st->st_size == (off_t)bytes_of((uint64_t)ranks);
}

bsrun_board *bsrun_board_at(int fd, int64_t ranks) {
  struct stat st;
  if (fstat(fd, &st) != 0 || !is_told(&st, ranks)) return NULL;
  bsrun_board *board = mmap(NULL, bytes_of((uint64_t)ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (board == MAP_FAILED) return NULL;
  if (board->magic == MAGIC && board->ranks == (uint64_t)ranks) return board;
  munmap(board, bytes_of((uint64_t)ranks));
  return NULL;
}

bsrun_board *bsrun_board_open(const char *path, int64_t ranks) {
  struct stat st;
  if (stat(path, &st) != 0 || !is_told(&st, ranks)) return NULL; /* opening alone may do something */
  const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return NULL;
  bsrun_board *board = bsrun_board_at(fd, ranks);
  close(fd);
  return board;
}

void bsrun_board_close(bsrun_board *board) {
  if (board != NULL) munmap(board, bytes_of(board->ranks));
}

void bsrun_board_put(bsrun_board *board, int64_t rank, const bs_error *err) {
  if (rank < 0 || (uint64_t)rank >= board->ranks) return;
  bsrun_row *row = &board->rows[rank];
  row->pid = (int32_t)getpid();
  if (err != NULL) row->err = *err;
  row->written = err != NULL;
}

void bsrun_board_put_death(bsrun_board *board, int64_t rank, const bs_error *err) {
  uint32_t none = 0;
  if (rank < 0 || (uint64_t)rank >= board->ranks || board->ending) return;
  if (bsrun_board_error(board, 0) != NULL) return; /* it followed from that, or that tells of it */
  if (!atomic_compare_exchange_strong(&board->dead, &none, (uint32_t)rank + 1u)) return;
  board->death = *err;
  board->told = 1;
}

void bsrun_board_hold(bsrun_board *board, int64_t rank) {
  uint32_t none = 0;
  if (rank >= 0 && (uint64_t)rank < board->ranks)
    atomic_compare_exchange_strong(&board->held, &none, (uint32_t)rank + 1u);
}

void bsrun_board_release(bsrun_board *board, int64_t rank) {
  uint32_t mine = (uint32_t)rank + 1u;
  if (bsrun_board_error(board, 0) == NULL) atomic_compare_exchange_strong(&board->held, &mine, 0u);
}

const bs_error *bsrun_board_death(const bsrun_board *board) {
  return board->told ? &board->death : NULL;
}

const bs_error *bsrun_board_error(const bsrun_board *board, uint32_t first) {
  const bs_error *found = NULL;
  for (uint32_t r = first; r < board->ranks; ++r) {
    const bsrun_row *row = &board->rows[r];
    if (!row->written) continue;
    if (found == NULL || (found->code == BS_ABORTED && row->err.code != BS_ABORTED)) found = &row->err;
  }
  return found;
}

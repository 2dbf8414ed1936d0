/* SPDX-License-Identifier: MIT
 * guard.h - the ranges of memory in which a lost page is replaced (guard.c). Thread-safe. */
#ifndef BS_FORMATS_GUARD_H
#define BS_FORMATS_GUARD_H
#include <stdint.h>

/* Watch the range that a whole file is mapped to; 0 when 4096 ranges are watched. Installs the handler of
 * SIGBUS when it is the first. */
uint32_t bs_guard_add(const void *data, uint64_t bytes, int fd);
/* The descriptor of the file that has these bytes, and their place in it; -1: no watched range has them. */
int bs_guard_file(const void *data, uint64_t bytes, uint64_t *out_at);
/* Whether a page of it was lost. */
int bs_guard_lost(uint32_t guard);
/* Call it before the range is unmapped. 0 is no guard. */
void bs_guard_remove(uint32_t guard);
#endif

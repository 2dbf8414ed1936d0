/* SPDX-License-Identifier: MIT
 * file_sum.h - SHA-256 of files that a process asks for again and again: a run names the sums of its plugins
 * in its key, its record and each tuner decision, and some plugins are tens of MiB. */
#ifndef BS_LAB_STORE_FILE_SUM_H
#define BS_LAB_STORE_FILE_SUM_H
#include <stdint.h>

#include "blockshock/abi.h"

/* As bs_sha256_file, but a file is read again only when its device, inode, size, mtime or ctime differ from
 * those it was read under. Thread-safe. Not for files whose every byte must be looked at now (the store's
 * own).
 */
int32_t bs_file_sum(const char *path, char out_hex[65], bs_error *err);
/* How often this process has read a file for bs_file_sum. */
uint64_t bs_file_sum_reads(void);
#endif

/* SPDX-License-Identifier: MIT
 * file_sum.h - SHA-256 of files that a process needs repeatedly: a run names the sums of its plugins in its
 * key, its record and each tuner decision, and some plugins are tens of MiB. */
#ifndef BS_LAB_STORE_FILE_SUM_H
#define BS_LAB_STORE_FILE_SUM_H
#include <stdint.h>

#include "blockshock/abi.h"

/* Device, inode, size, mtime and ctime of a file as text: equal texts mean equal contents. A program that
 * writes to a file can set its mtime, but only the kernel sets its ctime. 0, and "": there is no such
 * file. */
enum { BS_FILE_STAMP = 160 };
int bs_file_stamp(const char *path, char out_stamp[BS_FILE_STAMP]);

/* Like bs_sha256_file, but reads a file again only if its stamp has changed. Thread-safe. Not for files that
 * must be verified byte by byte (the store's own). */
int32_t bs_file_sum(const char *path, char out_hex[65], bs_error *err);
/* SHA-256 of a file; of one above 64 MiB that of 64 pieces of 1 MiB, evenly spread, including the first and
 * the last: then *out_whole is 0. BS_IO: it cannot be read, or is not a regular file. */
int32_t bs_file_sum_parts(const char *path, char out_hex[65], int *out_whole, bs_error *err);
/* The number of times this process has read a file for bs_file_sum. */
uint64_t bs_file_sum_reads(void);
#endif

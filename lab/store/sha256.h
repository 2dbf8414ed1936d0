/* SPDX-License-Identifier: MIT
 * sha256.h - SHA-256 (FIPS 180-4) and CRC-32C (Castagnoli): run keys, file sums in DONE, line sums in
 * metrics.jsonl. Implemented here because no dependency has them. Thread-safe. */
#ifndef BS_LAB_STORE_SHA256_H
#define BS_LAB_STORE_SHA256_H
#include <stddef.h>
#include <stdint.h>

#include "blockshock/abi.h"

typedef struct bs_sha256 {
  uint32_t state[8];
  uint64_t bytes;
  uint8_t block[64];
  size_t used;
} bs_sha256;

void bs_sha256_init(bs_sha256 *h);
void bs_sha256_add(bs_sha256 *h, const void *data, size_t size);
/* A length-prefixed field, so that ("ab","c") and ("a","bc") differ. */
void bs_sha256_field(bs_sha256 *h, const char *text);
/* 64 lowercase hex digits and a NUL. */
void bs_sha256_hex(bs_sha256 *h, char out_hex[65]);
/* The hash of a regular file; BS_IO with errno otherwise. */
int32_t bs_sha256_file(const char *path, char out_hex[65], bs_error *err);

/* Adds `count` blocks of 64 bytes to a state: in C, and by the SHA instructions of x86 (NULL: not
 * available). */
typedef void bs_sha256_blocks(uint32_t state[8], const uint8_t *data, size_t count);
void bs_sha256_portable(uint32_t state[8], const uint8_t *data, size_t count);
bs_sha256_blocks *bs_sha256_ni(void);
extern const uint32_t bs_sha256_constants[64];

uint32_t bs_crc32c(const void *data, size_t size);
#endif

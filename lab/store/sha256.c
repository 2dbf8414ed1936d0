/* SPDX-License-Identifier: MIT
 * sha256.c - see sha256.h; checked against the vectors of FIPS 180-4 and RFC 3720 in tests/lab. */
#include "lab/store/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"

const uint32_t bs_sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, unsigned n) {
  return (x >> n) | (x << (32u - n));
}

static void add_block(uint32_t state[8], const uint8_t block[64]) {
  uint32_t w[64];
  for (size_t i = 0; i < 16; i++) {
    w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
           (uint32_t)block[4 * i + 3];
  }
  for (size_t i = 16; i < 64; i++) {
    const uint32_t near = w[i - 2], far = w[i - 15];
    w[i] = w[i - 16] + w[i - 7] + (rotate(far, 7) ^ rotate(far, 18) ^ (far >> 3)) +
           (rotate(near, 17) ^ rotate(near, 19) ^ (near >> 10));
  }
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  for (size_t i = 0; i < 64; i++) {
    const uint32_t t1 = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) +
                        bs_sha256_constants[i] + w[i];
    const uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; i++) state[i] += sums[i];
}

void bs_sha256_portable(uint32_t state[8], const uint8_t *data, size_t count) {
  for (; count > 0; --count, data += 64) add_block(state, data);
}

static void add_blocks(uint32_t state[8], const uint8_t *data, size_t count) {
  bs_sha256_blocks *ni = bs_sha256_ni();
  (ni != NULL ? ni : bs_sha256_portable)(state, data, count);
}

void bs_sha256_init(bs_sha256 *h) {
  static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memset(h, 0, sizeof *h);
  memcpy(h->state, start, sizeof start);
}

void bs_sha256_add(bs_sha256 *h, const void *data, size_t size) {
  const uint8_t *p = data;
  h->bytes += size;
  while (size > 0) {
    if (h->used == 0 && size >= sizeof h->block) {
      const size_t whole = size / sizeof h->block;
      add_blocks(h->state, p, whole);
      p += whole * sizeof h->block;
      size -= whole * sizeof h->block;
      continue;
    }
    size_t n = sizeof h->block - h->used;
    if (n > size) n = size;
    memcpy(h->block + h->used, p, n);
    h->used += n;
    p += n;
    size -= n;
    if (h->used == sizeof h->block) {
      add_blocks(h->state, h->block, 1);
      h->used = 0;
    }
  }
}

void bs_sha256_field(bs_sha256 *h, const char *text) {
  char length[32];
  const size_t size = strlen(text);
  const int n = snprintf(length, sizeof length, "%zu:", size);
  bs_sha256_add(h, length, (size_t)n);
  bs_sha256_add(h, text, size);
}

void bs_sha256_hex(bs_sha256 *h, char out_hex[65]) {
  static const uint8_t padding[64] = {0x80};
  uint8_t length[8];
  const uint64_t bits = h->bytes * 8u;
  for (size_t i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56u - 8u * i));
  bs_sha256_add(h, padding, 1 + (h->used < 56 ? 55 - h->used : 119 - h->used));
  bs_sha256_add(h, length, sizeof length);
  for (size_t i = 0; i < 8; i++) snprintf(out_hex + 8 * i, 9, "%08x", h->state[i]);
}

int32_t bs_sha256_file(const char *path, char out_hex[65], bs_error *err) {
  uint8_t buffer[16384];
  struct stat st;
  bs_sha256 h;
  bs_sha256_init(&h);
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return bs_error_errno(err, BS_IO, "BS-STO-READ", errno, "cannot open %.300s", path);
  int32_t rc = BS_OK;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    rc = bs_error_set(err, BS_IO, "BS-STO-READ", "%.300s is not a regular file", path);
  }
  while (rc == BS_OK) {
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n == 0) break;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      rc = bs_error_errno(err, BS_IO, "BS-STO-READ", errno, "cannot read %.300s", path);
    } else {
      bs_sha256_add(&h, buffer, (size_t)n);
    }
  }
  close(fd);
  if (rc == BS_OK) bs_sha256_hex(&h, out_hex);
  return rc;
}

/* table[k][b]: the sum of byte b that k zero bytes follow, so that eight bytes are one step. */
static uint32_t crc_table[8][256];

static void make_crc_table(void) {
  for (uint32_t b = 0; b < 256; b++) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1u)));
    crc_table[0][b] = crc;
  }
  for (int k = 1; k < 8; k++)
    for (int b = 0; b < 256; b++)
      crc_table[k][b] = (crc_table[k - 1][b] >> 8) ^ crc_table[0][crc_table[k - 1][b] & 0xffu];
}

uint32_t bs_crc32c(const void *data, size_t size) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  const uint8_t *p = data;
  uint32_t crc = 0xffffffffu;
  pthread_once(&once, make_crc_table);
  for (; size >= 8; size -= 8, p += 8) {
    const uint32_t low =
        crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
    crc = crc_table[7][low & 0xffu] ^ crc_table[6][low >> 8 & 0xffu] ^ crc_table[5][low >> 16 & 0xffu] ^
          crc_table[4][low >> 24] ^ crc_table[3][p[4]] ^ crc_table[2][p[5]] ^ crc_table[1][p[6]] ^
          crc_table[0][p[7]];
  }
  for (; size > 0; size--, p++) crc = (crc >> 8) ^ crc_table[0][(crc ^ *p) & 0xffu];
  return ~crc;
}

/* SPDX-License-Identifier: MIT
 * utf8.h - characters of UTF-8. */
#ifndef BS_TEXT_UTF8_H
#define BS_TEXT_UTF8_H
#include <stddef.h>
#include <stdint.h>

/* The bytes of the character that begins at `text`; 0: it is none. As in Unicode's table 3-7: no surrogates,
 * nothing beyond U+10FFFF, the shortest form alone. *out_good: how many bytes begin a character that is cut
 * off there. */
static inline size_t bs_utf8_measure(const char *text, size_t bytes, size_t *out_good) {
  const unsigned char *p = (const unsigned char *)text;
  unsigned char low = 0x80, high = 0xbf;
  size_t n;
  *out_good = 1;
  if (bytes == 0) return 0;
  if (p[0] < 0x80) return 1;
  if (p[0] < 0xc2 || p[0] > 0xf4) return 0;
  n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
  if (p[0] == 0xe0) low = 0xa0;
  if (p[0] == 0xed) high = 0x9f;
  if (p[0] == 0xf0) low = 0x90;
  if (p[0] == 0xf4) high = 0x8f;
  for (size_t i = 1; i < n; i++) {
    if (i >= bytes || p[i] < low || p[i] > high) return 0;
    *out_good = i + 1;
    low = 0x80;
    high = 0xbf;
  }
  return n;
}

/* The character at `text`, which is valid; *out_bytes is its size. */
static inline uint32_t bs_utf8_get(const char *text, size_t *out_bytes) {
  const unsigned char *p = (const unsigned char *)text;
  if (p[0] < 0x80) {
    *out_bytes = 1;
    return p[0];
  }
  if (p[0] < 0xe0) {
    *out_bytes = 2;
    return (uint32_t)(p[0] & 31) << 6 | (p[1] & 63);
  }
  if (p[0] < 0xf0) {
    *out_bytes = 3;
    return (uint32_t)(p[0] & 15) << 12 | (uint32_t)(p[1] & 63) << 6 | (p[2] & 63);
  }
  *out_bytes = 4;
  return (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 63) << 12 | (uint32_t)(p[2] & 63) << 6 | (p[3] & 63);
}

/* Writes a character; returns its bytes. */
static inline size_t bs_utf8_put(uint32_t c, char out[4]) {
  if (c < 0x80) {
    out[0] = (char)c;
    return 1;
  }
  if (c < 0x800) {
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 63));
    return 2;
  }
  if (c < 0x10000) {
    out[0] = (char)(0xe0 | c >> 12);
    out[1] = (char)(0x80 | (c >> 6 & 63));
    out[2] = (char)(0x80 | (c & 63));
    return 3;
  }
  out[0] = (char)(0xf0 | c >> 18);
  out[1] = (char)(0x80 | (c >> 12 & 63));
  out[2] = (char)(0x80 | (c >> 6 & 63));
  out[3] = (char)(0x80 | (c & 63));
  return 4;
}

/* Where the character before `at` begins; at > 0. */
static inline size_t bs_utf8_before(const char *text, size_t at) {
  do at--;
  while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80);
  return at;
}
#endif

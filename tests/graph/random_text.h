/* SPDX-License-Identifier: MIT
 * random_text.h - random weights in the cases of text: "float[2,3] w = {@SEED SCALE OFFSET}" stands for the
 * elements OFFSET + SCALE * k / 128, as model_cases.py makes them. */
#ifndef BS_TESTS_GRAPH_RANDOM_TEXT_H
#define BS_TESTS_GRAPH_RANDOM_TEXT_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* k of element i: the upper eight bits of splitmix64, signed. */
static inline int random_step(uint64_t seed, uint64_t i) {
  uint64_t z = (seed << 32) + i + 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  z ^= z >> 31;
  const int k = (int)(z >> 56);
  return k < 128 ? k : k - 256;
}

/* The product of the dims of the last "float[..]" in [text, end); 0: there is none. */
static inline uint64_t random_count(const char *text, const char *end) {
  while (end > text && strncmp(end, "float[", 6) != 0) --end;
  if (end <= text) return 0;
  uint64_t count = 1;
  char *next = (char *)(uintptr_t)(end + 5);
  do {
    count *= strtoull(next + 1, &next, 10);
  } while (*next == ',');
  return *next == ']' && count < (1U << 24) ? count : 0;
}

/* The text with every {@..} written out, to be freed; NULL: one is wrong, or there is no memory. */
static inline char *random_expand(const char *text) {
  char *out = NULL, *next = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&out, &size);
  if (f == NULL) return NULL;
  int ok = 1;
  const char *rest = text;
  for (const char *at; ok && (at = strstr(rest, "{@")) != NULL; rest = next + 1) {
    fprintf(f, "%.*s{", (int)(at - rest), rest);
    const uint64_t count = random_count(text, at), seed = strtoull(at + 2, &next, 10);
    const double scale = strtod(next, &next), offset = strtod(next, &next);
    ok = count > 0 && *next == '}';
    for (uint64_t i = 0; ok && i < count; i++)
      fprintf(f, "%s%.9g", i > 0 ? "," : "", offset + scale * random_step(seed, i) / 128);
    fputs("}", f);
  }
  if (ok) fputs(rest, f);
  ok = fclose(f) == 0 && ok;
  if (ok) return out;
  free(out);
  return NULL;
}
#endif

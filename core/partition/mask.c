/* SPDX-License-Identifier: MIT
 *
 * mask.c - masks by name and pattern: parsing and the checks that a mask passes by itself. Called by
 * the lab (mask.* keys, --mask), by embedders and by partition.c. No state: thread-safe.
 */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/partition/partition.h"

#define PATTERN_LEN 4u
#define PATTERN_ALL 0xFu

/* The six 2-of-4 patterns have canonical mask names with static storage, so that a bs_mask owns nothing. */
static const struct {
  uint32_t bits; /* bit j: character j of the pattern */
  const char *name;
} complement_names[] = {
    {0x3u, "complement_1100_0011"}, {0xCu, "complement_0011_1100"}, {0x5u, "complement_1010_0101"},
    {0xAu, "complement_0101_1010"}, {0x9u, "complement_1001_0110"}, {0x6u, "complement_0110_1001"},
};

static const struct {
  const char *name;
  uint32_t kind;
} plain_names[] = {
    {"contiguous", BS_MASK_CONTIGUOUS},  {"interleave", BS_MASK_INTERLEAVE},
    {"uneven", BS_MASK_UNEVEN},          {"random_2of4", BS_MASK_RANDOM_2OF4},
    {"magnitude", BS_MASK_MAGNITUDE},    {"transposable", BS_MASK_TRANSPOSABLE},
    {"random", BS_MASK_RANDOM_2OF4},     {"magnitude_2of4", BS_MASK_MAGNITUDE},
    {"interleaved", BS_MASK_INTERLEAVE}, {"row", BS_MASK_CONTIGUOUS},
    {"importance", BS_MASK_IMPORTANCE},
};

static const char *canonical_name(uint32_t kind, uint32_t pattern_a) {
  if (kind == BS_MASK_COMPLEMENT) {
    for (size_t i = 0; i < sizeof complement_names / sizeof complement_names[0]; i++)
      if (complement_names[i].bits == pattern_a) return complement_names[i].name;
    return "complement";
  }
  for (size_t i = 0; i < sizeof plain_names / sizeof plain_names[0]; i++)
    if (plain_names[i].kind == kind) return plain_names[i].name;
  return "?";
}

static void pattern_text(uint32_t bits, char out[5]) {
  for (uint32_t j = 0; j < PATTERN_LEN; j++) out[j] = (bits >> j & 1u) ? '1' : '0';
  out[4] = '\0';
}

static int32_t pattern_error(bs_error *err, const char *text, const char *why) {
  bs_error_set(err, BS_CONFIG, "BS-MASK-PATTERN", "mask pattern '%.40s': %s", text, why);
  bs_error_hint(err, "a pattern keeps exactly two of four columns: 1100, 1010, 1001, 0110, 0101 or 0011");
  return BS_CONFIG;
}

int32_t bs_pattern_parse(const char *text, uint32_t *out_bits, bs_error *err) {
  if (text == NULL || out_bits == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-MASK-PATTERN", "a mask pattern is missing");
  uint32_t bits = 0, length = 0, ones = 0;
  for (const char *c = text; *c != '\0'; c++) {
    if (strchr("[](),-_ \t", *c) != NULL) continue;
    if (*c != '0' && *c != '1') return pattern_error(err, text, "only 0 and 1 may stand in it");
    if (length == PATTERN_LEN) return pattern_error(err, text, "it has more than four digits");
    if (*c == '1') {
      bits |= 1u << length;
      ones++;
    }
    length++;
  }
  if (length != PATTERN_LEN) return pattern_error(err, text, "it has fewer than four digits");
  if (ones != 2)
    return pattern_error(err, text,
                         ones > 2 ? "it keeps more than two of four" : "it keeps fewer than two of four");
  *out_bits = bits;
  return BS_OK;
}

/* The next run of 0/1 characters at or after `at` that is exactly four long, copied to out. */
static const char *next_digits(const char *at, char out[5]) {
  while (*at != '\0') {
    size_t run = strspn(at, "01");
    if (run == PATTERN_LEN) {
      memcpy(out, at, PATTERN_LEN);
      out[PATTERN_LEN] = '\0';
      return at + run;
    }
    at += run > 0 ? run : 1;
  }
  return NULL;
}

static int32_t unknown_name(const char *name, bs_error *err) {
  const char *known[sizeof plain_names / sizeof plain_names[0] +
                    sizeof complement_names / sizeof complement_names[0]];
  size_t n = 0;
  for (size_t i = 0; i < sizeof complement_names / sizeof complement_names[0]; i++)
    known[n++] = complement_names[i].name;
  for (size_t i = 0; i < sizeof plain_names / sizeof plain_names[0]; i++) known[n++] = plain_names[i].name;
  const char *near = bs_nearest(name, known, n);
  bs_error_set(err, BS_CONFIG, "BS-MASK-NAME", "unknown mask '%.60s'", name);
  if (strcmp(name, "2:4") == 0)
    bs_error_hint(err, "the masks of 2:4 weights are random_2of4, magnitude and transposable");
  else if (near != NULL)
    bs_error_hint(err, "did you mean '%s'?", near);
  else
    bs_error_hint(err,
                  "for example --mask interleave; masks: complement_<a>_<b> with patterns such as 1100 and "
                  "0011, interleave, contiguous, uneven, "
                  "importance, random_2of4, magnitude, transposable");
  return BS_CONFIG;
}

/* Patterns given by themselves win over those in the name. */
static int32_t parse_complement(const char *name, const char *pattern_a, const char *pattern_b, bs_mask *mask,
                                bs_error *err) {
  char a[5], b[5];
  if (pattern_a == NULL && name != NULL) {
    const char *rest = next_digits(name, a);
    if (rest == NULL) return pattern_error(err, name, "the name holds no four digits of 0 and 1");
    pattern_a = a;
    const int second = strspn(rest, "/_") == 1 && strspn(rest + 1, "01") == PATTERN_LEN;
    const int first = strspn(name, "0123456789/_") == 0 || rest == name + PATTERN_LEN;
    if (!first || rest[second ? 1 + PATTERN_LEN : 0] != '\0')
      return pattern_error(err, name, "it is not one pattern, nor two with / between them");
    if (pattern_b == NULL && second && next_digits(rest, b) != NULL) pattern_b = b;
  }
  if (pattern_a == NULL) return pattern_error(err, "", "pattern_b is given without pattern_a");
  int32_t rc = bs_pattern_parse(pattern_a, &mask->pattern_a, err);
  if (rc != BS_OK) return rc;
  mask->pattern_b = ~mask->pattern_a & PATTERN_ALL;
  if (pattern_b != NULL) {
    rc = bs_pattern_parse(pattern_b, &mask->pattern_b, err);
    if (rc != BS_OK) return rc;
  }
  mask->kind = BS_MASK_COMPLEMENT;
  mask->pattern_len = PATTERN_LEN;
  mask->name = canonical_name(BS_MASK_COMPLEMENT, mask->pattern_a);
  return bs_mask_check(mask, err);
}

int32_t bs_mask_parse(const char *name, const char *pattern_a, const char *pattern_b, bs_mask *out_mask,
                      bs_error *err) {
  if (out_mask == NULL || (name == NULL && pattern_a == NULL))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-MASK-NAME", "a mask needs a name or a pattern");
  bs_mask mask;
  memset(&mask, 0, sizeof mask);
  mask.struct_size = (uint32_t)sizeof mask;
  for (size_t i = 0; name != NULL && i < sizeof plain_names / sizeof plain_names[0]; i++) {
    if (strcmp(name, plain_names[i].name) != 0) continue;
    if (pattern_a != NULL || pattern_b != NULL) {
      bs_error_set(err, BS_CONFIG, "BS-MASK-PATTERN", "mask '%s' takes no pattern", name);
      bs_error_hint(err, "leave out the patterns, or name the mask complement");
      return BS_CONFIG;
    }
    mask.kind = plain_names[i].kind;
    mask.name = canonical_name(mask.kind, 0);
    *out_mask = mask; /* shares and order: the caller sets them, and they stay the caller's */
    return BS_OK;
  }
  int32_t rc;
  char digits[5];
  if (name == NULL || pattern_a != NULL || strncmp(name, "complement", 10) == 0 ||
      name[strspn(name, "01")] == '\0' || next_digits(name, digits) != NULL)
    rc = parse_complement(name, pattern_a, pattern_b, &mask, err);
  else
    rc = unknown_name(name, err);
  if (rc == BS_OK) *out_mask = mask;
  return rc;
}

static int32_t check_complement(const bs_mask *mask, bs_error *err) {
  char a[5], b[5];
  pattern_text(mask->pattern_a, a);
  pattern_text(mask->pattern_b, b);
  if (mask->pattern_len != PATTERN_LEN || mask->pattern_a > PATTERN_ALL || mask->pattern_b > PATTERN_ALL)
    return pattern_error(err, a, "a pattern is four columns long");
  if (__builtin_popcount(mask->pattern_a) != 2)
    return pattern_error(err, a, "it must keep exactly two of four");
  if (mask->pattern_b != (~mask->pattern_a & PATTERN_ALL)) {
    char want[5];
    pattern_text(~mask->pattern_a & PATTERN_ALL, want);
    bs_error_set(err, BS_CONFIG, "BS-MASK-COMPLEMENT",
                 "mask patterns %s and %s are not complementary: some columns would be %s", a, b,
                 (mask->pattern_a & mask->pattern_b) != 0 ? "added twice and others lost" : "lost");
    bs_error_hint(err, "set pattern_b to %s, or leave it out", want);
    return BS_CONFIG;
  }
  return BS_OK;
}

static int32_t check_shares(const bs_mask *mask, bs_error *err) {
  if (mask->n_shares == 0 || mask->shares == NULL) {
    bs_error_set(err, BS_CONFIG, "BS-MASK-SHARES", "mask uneven: give one number per rank");
    bs_error_hint(err, "--set 'mask.shares=[3,1]' gives rank 0 three quarters of the columns");
    return BS_CONFIG;
  }
  for (uint32_t i = 0; i < mask->n_shares; i++)
    if (!isfinite(mask->shares[i]) || mask->shares[i] <= 0.0) {
      bs_error_set(err, BS_CONFIG, "BS-MASK-SHARES",
                   "share %u of the mask %s is %g: shares are finite and > 0", i,
                   mask->name != NULL ? mask->name : "uneven", mask->shares[i]);
      bs_error_hint(err, "use a mask with fewer ranks to leave a rank out");
      return BS_CONFIG;
    }
  return BS_OK;
}

int32_t bs_mask_check(const bs_mask *mask, bs_error *err) {
  if (mask == NULL) return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-MASK-NAME", "no mask given");
  switch (mask->kind) {
    case BS_MASK_COMPLEMENT:
      return check_complement(mask, err);
    case BS_MASK_UNEVEN:
      return check_shares(mask, err);
    case BS_MASK_IMPORTANCE:
      return mask->n_shares == 0 ? BS_OK : check_shares(mask, err);
    case BS_MASK_CONTIGUOUS:
    case BS_MASK_INTERLEAVE:
    case BS_MASK_RANDOM_2OF4:
    case BS_MASK_MAGNITUDE:
    case BS_MASK_TRANSPOSABLE:
      return BS_OK;
    default:
      return bs_error_set(err, BS_CONFIG, "BS-MASK-NAME", "unknown mask kind %u", mask->kind);
  }
}

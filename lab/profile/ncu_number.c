/* SPDX-License-Identifier: MIT
 * ncu_number.c - see ncu_number.h. */
#include "lab/profile/ncu_number.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/text.h"

enum { LONGEST = 64 };

static int is_digit(char c) {
  return c >= '0' && c <= '9';
}

static size_t digits(const char *text) {
  size_t n = 0;
  while (is_digit(text[n])) n++;
  return n;
}

int bs_ncu_tells_nothing(const char *text) {
  static const char *const words[] = {"",          "n/a",      "na",   "nan",  "-nan", "+nan",
                                      "-nan(ind)", "nan(ind)", "inf",  "+inf", "-inf", "infinity",
                                      "-infinity", "-",        "none", "null"};
  while (*text == ' ') text++;
  if (strncmp(text, "(!)", 3) == 0) return 1;
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strcasecmp(words[i], text) == 0) return 1;
  return 0;
}

/* The number without marks of thousands and with a point; 0: not a number in this style. */
static int plain(const char *text, char group, char point, char out[LONGEST]) {
  size_t n = 0, run = digits(text + (*text == '-'));
  const char *from = text + (*text == '-');
  if (strlen(text) + 1 >= LONGEST || run == 0) return 0;
  if (*text == '-') out[n++] = '-';
  memcpy(out + n, from, run);
  n += run;
  from += run;
  while (run <= 3 && *from == group && digits(from + 1) == 3) {
    memcpy(out + n, from + 1, 3);
    n += 3;
    from += 4;
  }
  if (*from == point && is_digit(from[1])) {
    run = digits(from + 1);
    out[n++] = '.';
    memcpy(out + n, from + 1, run);
    n += run;
    from += 1 + run;
  }
  if ((*from == 'e' || *from == 'E') && is_digit(from[1 + (from[1] == '-' || from[1] == '+')])) {
    run = 1 + (size_t)(from[1] == '-' || from[1] == '+');
    run += digits(from + run);
    memcpy(out + n, from, run);
    n += run;
    from += run;
  }
  out[n] = '\0';
  return *from == '\0';
}

int bs_ncu_number(const char *text, enum bs_ncu_style style, const bs_ncu_range *range, double *out) {
  char number[LONGEST];
  const int read = style == BS_NCU_POINT ? plain(text, ',', '.', number) : plain(text, '.', ',', number);
  return read && bs_parse_f64(number, out) && *out >= range->least && *out <= range->most;
}

void bs_ncu_vote(const char *text, const bs_ncu_range *range, size_t place, bs_ncu_votes *votes) {
  double value[BS_NCU_STYLES] = {0};
  const int point = bs_ncu_number(text, BS_NCU_POINT, range, &value[BS_NCU_POINT]);
  const int comma = bs_ncu_number(text, BS_NCU_COMMA, range, &value[BS_NCU_COMMA]);
  if (point && comma) {
    if (votes->doubtful == 0 && value[BS_NCU_POINT] != value[BS_NCU_COMMA] && strchr(text, ',') != NULL)
      votes->doubtful = place;
    return;
  }
  const enum bs_ncu_style style = point ? BS_NCU_POINT : BS_NCU_COMMA;
  if (!point && !comma) return;
  if (votes->n[style]++ == 0) votes->first[style] = place;
}

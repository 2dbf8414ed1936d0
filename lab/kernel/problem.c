/* SPDX-License-Identifier: MIT
 * problem.c - see problem.h. */
#include "lab/kernel/problem.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/word.h"

enum {
  MOST = 1 << 24,
  MOST_HEAD = 1024,
  PARTS = 8
};                                          /* the widest head for which the oracle predicts the
                                             * error (oracle.c) */
static const double MOST_ELEMENTS = 1.7e10; /* of one tensor */

const bs_kernel_shape bs_kernel_shapes[] = {
    {"small", "b1h8s128d64"}, {"mission", "b2h8s512d64"},     {"long", "b2h8s2048d64"},
    {"gqa", "b2h8g2s512d64"}, {"decode", "b4h8g2s1t2048d64"}, {NULL, NULL},
};
static const char *const masks[] = {"full", "causal", "causal_br"}; /* by enum bs_causal */
enum { MASKS = sizeof masks / sizeof masks[0] };

/* Kinds: the word in front of a text, the op, the letters of sizes and those that must be there. */
static const struct {
  const char *word, *op, *letters, *needed;
} kinds[BS_KERNEL_KINDS_] = {
    [BS_KERNEL_SDPA] = {"sdpa", "attention", "bhgstde", "bhsd"},
    [BS_KERNEL_MATMUL] = {"matmul", "matmul", "nkb", "nkb"},
    [BS_KERNEL_MATMUL24] = {"matmul24", "matmul24", "nkb", "nkb"},
    [BS_KERNEL_SDPA_DX] = {"sdpa_dx", "attention_dx", "bhgstde", "bhsd"},
    [BS_KERNEL_MATMUL_DX] = {"matmul_dx", "matmul_dx", "nkb", "nkb"},
    [BS_KERNEL_MATMUL_DW] = {"matmul_dw", "matmul_dw", "nkb", "nkb"},
    [BS_KERNEL_MATMUL24_DX] = {"matmul24_dx", "matmul24_dx", "nkb", "nkb"},
    [BS_KERNEL_MATMUL24_DW] = {"matmul24_dw", "matmul24_dw", "nkb", "nkb"},
};
static const char *const column_names[BS_COLUMNS_] = {"all", "run", "masked"};

const char *bs_kernel_problem_op(uint32_t kind) {
  return kind < BS_KERNEL_KINDS_ ? kinds[kind].op : "?";
}

const char *bs_kernel_mask_name(uint32_t causal) {
  return causal < MASKS ? masks[causal] : "?";
}

static int is_dw(const bs_kernel_problem *p) {
  return bs_kernel_is_product(p) && !bs_kernel_has_weight(p);
}

static int is_forward(const bs_kernel_problem *p) {
  return p->kind == BS_KERNEL_MATMUL || p->kind == BS_KERNEL_MATMUL24;
}

void bs_kernel_y_size(const bs_kernel_problem *p, int64_t *out_rows, int64_t *out_cols) {
  *out_rows = is_dw(p) ? p->N : p->B;
  *out_cols = is_forward(p) ? p->N : p->kind == BS_KERNEL_MATMUL24_DW ? 2 * ((p->K + 3) / 4) : p->K;
}

uint32_t bs_kernel_y_dtype(const bs_kernel_problem *p) {
  if (is_dw(p)) return p->dtype == BS_F64 ? BS_F64 : BS_F32;
  return BS_DTYPE_BYTES(p->dtype) == 1 ? BS_BF16 : p->dtype;
}

/* ---- reading ------------------------------------------------------------------------------------ */

static int32_t refuse(bs_error *err, const char *text, const char *what, const char *part) {
  bs_error_set(err, BS_USAGE, "BS-KERNEL-PROBLEM", "'%.80s' is no problem of a kernel: %s '%.40s'", text,
               what, part);
  bs_error_hint(err, "as in b2h8s512d64:bf16:causal, mission:f32, matmul24 n4096k4096b64:f32");
  return BS_USAGE;
}

static int32_t unknown(bs_error *err, const char *what, const char *word, const char *const *known,
                       size_t n) {
  const char *nearest = bs_nearest(word, known, n);
  bs_text all = {0};
  for (size_t i = 0; i < n; i++) bs_text_printf(&all, "%s%s", i > 0 ? ", " : "", known[i]);
  bs_error_set(err, BS_USAGE, "BS-KERNEL-PROBLEM", "unknown %s '%.60s'", what, word);
  if (nearest != NULL)
    bs_error_hint(err, "did you mean '%s'? known: %s", nearest, all.failed ? "" : all.data);
  else
    bs_error_hint(err, "known: %s", all.failed || all.data == NULL ? "" : all.data);
  bs_text_free(&all);
  return BS_USAGE;
}

static int64_t *size_at(bs_kernel_problem *p, char letter) {
  switch (letter) {
    case 'b':
      return &p->B;
    case 'h':
      return &p->H;
    case 'g':
      return &p->G;
    case 's':
      return &p->S;
    case 't':
      return &p->T;
    case 'd':
      return &p->D;
    case 'e':
      return &p->E;
    case 'n':
      return &p->N;
    default:
      return &p->K;
  }
}

/* Reads digits and an optional unit. A k before a digit is the letter of a size. 0: no number, or too large.
 */
static int64_t read_number(const char **at) {
  int64_t n = 0;
  while (isdigit((unsigned char)**at) && n <= MOST) n = 10 * n + (*(*at)++ - '0');
  if (**at == 'k' && isdigit((unsigned char)(*at)[1])) return n <= MOST ? n : 0;
  const int64_t unit = bs_size_unit(at);
  return n <= MOST / unit ? n * unit : 0;
}

static int32_t read_sizes(const char *text, const char *part, bs_kernel_problem *p, bs_error *err) {
  const char *letters = kinds[p->kind].letters, *at = part;
  while (*at != '\0') {
    const char *begin = at, letter = *at++;
    if (strchr(letters, letter) == NULL) return refuse(err, text, "no size has the letter of", begin);
    int64_t *to = size_at(p, letter);
    if (*to != 0) return refuse(err, text, "a size is given twice:", begin);
    if (!isdigit((unsigned char)*at)) return refuse(err, text, "a number is missing in", begin);
    *to = read_number(&at);
    if (*to == 0) return refuse(err, text, "not from 1 to 16Mi:", begin);
  }
  for (const char *c = kinds[p->kind].needed; *c != '\0'; c++) {
    const char missing[2] = {*c, '\0'};
    if (*size_at(p, *c) == 0) return refuse(err, text, "it lacks the size", missing);
  }
  return BS_OK;
}

/* "w256", "r8": 1 and the window. */
static int read_window(const char *part, bs_kernel_problem *p, int *out_bad) {
  if ((part[0] != 'w' && part[0] != 'r') || !isdigit((unsigned char)part[1])) return 0;
  int64_t *to = part[0] == 'w' ? &p->left : &p->right;
  const char *at = part + 1;
  const int twice = *to != 0;
  *to = read_number(&at);
  *out_bad = twice || *to == 0 || *at != '\0';
  return 1;
}

static int32_t read_dtype(const char *part, uint32_t *out, bs_error *err) {
  const char *words[BS_WORDS_MAX];
  if (bs_word_read(BS_NAMES_DTYPE, bs_float_dtypes, BS_FLOAT_DTYPES, part, out)) return BS_OK;
  return unknown(err, "dtype", part, words,
                 bs_word_list(BS_NAMES_DTYPE, bs_float_dtypes, BS_FLOAT_DTYPES, words));
}

static int32_t read_mask(const char *part, uint32_t *out, bs_error *err) {
  for (uint32_t i = 0; i < MASKS; i++)
    if (strcmp(part, masks[i]) == 0) {
      *out = i;
      return BS_OK;
    }
  return unknown(err, "mask", part, masks, MASKS);
}

static int read_columns(const char *part, uint32_t *out) {
  for (uint32_t i = BS_COLUMNS_RUN; i < BS_COLUMNS_; i++) {
    if (strcmp(part, column_names[i]) != 0) continue;
    *out = i;
    return 1;
  }
  return 0;
}

/* Reads a part after a colon: a dtype, a mask, a window or columns, each at most once. */
static int32_t read_part(const char *text, const char *part, bs_kernel_problem *p, int *masked,
                         bs_error *err) {
  static const char *const more[] = {"full", "causal", "causal_br", "wN", "rN"}; /* of sdpa */
  int bad = 0;
  uint32_t mask = 0, dtype = 0;
  if (!bs_kernel_is_product(p) && read_window(part, p, &bad))
    return bad ? refuse(err, text, "a window that is no number, or is there twice:", part) : BS_OK;
  if (!bs_kernel_is_product(p) && read_mask(part, &mask, NULL) == BS_OK) {
    if (*masked) return refuse(err, text, "a second mask", part);
    *masked = 1;
    p->causal = mask;
    return BS_OK;
  }
  if (p->kind == BS_KERNEL_MATMUL && p->columns == BS_COLUMNS_ALL && read_columns(part, &p->columns))
    return BS_OK;
  if (!bs_word_read(BS_NAMES_DTYPE, bs_float_dtypes, BS_FLOAT_DTYPES, part, &dtype)) {
    const char *words[BS_WORDS_MAX];
    size_t n = bs_word_list(BS_NAMES_DTYPE, bs_float_dtypes, BS_FLOAT_DTYPES, words);
    for (size_t i = 0; !bs_kernel_is_product(p) && i < sizeof more / sizeof more[0]; i++)
      words[n++] = more[i];
    return unknown(err, !bs_kernel_is_product(p) ? "dtype, mask or window" : "dtype", part, words, n);
  }
  if (p->dtype != 0) return refuse(err, text, "a second dtype", part);
  p->dtype = dtype;
  return BS_OK;
}

static double elements(const bs_kernel_problem *p) {
  const double q = (double)(p->B * p->H) * (double)(p->S * p->D), n = (double)(p->N * p->K);
  const double k = (double)(p->B * p->G) * (double)p->T * (double)(p->D > p->E ? p->D : p->E);
  return q > k ? (q > n ? q : n) : k > n ? k : n;
}

/* Fills in omitted values and rejects combinations that do not fit together. */
static int32_t complete(const char *text, bs_kernel_problem *p, bs_error *err) {
  if (p->dtype == 0) p->dtype = BS_F32;
  if (!bs_kernel_is_product(p)) {
    if (p->G == 0) p->G = p->H;
    if (p->T == 0) p->T = p->S;
    if (p->E == 0) p->E = p->D;
    if (p->G < 1 || p->H % p->G != 0) return refuse(err, text, "h is no multiple of", "g");
    if (p->D > MOST_HEAD || p->E > MOST_HEAD)
      return refuse(err, text, "a head of more than 1024 elements:", p->D > MOST_HEAD ? "d" : "e");
  }
  if (p->columns != BS_COLUMNS_ALL && p->K % 4 != 0)
    return refuse(err, text, "half of the columns needs a K of fours:", column_names[p->columns]);
  if (elements(p) > MOST_ELEMENTS) return refuse(err, text, "more than 17G elements in", "a tensor");
  return BS_OK;
}

/* The kind in front of a space; without one it is attention. */
static int32_t read_kind(const char **text, bs_kernel_problem *p, bs_error *err) {
  const char *space = strchr(*text, ' '), *words[BS_KERNEL_KINDS_];
  char word[16];
  p->kind = BS_KERNEL_SDPA;
  if (space == NULL) return BS_OK;
  snprintf(word, sizeof word, "%.*s", (int)(space - *text), *text);
  for (uint32_t i = 0; i < BS_KERNEL_KINDS_; i++) {
    words[i] = kinds[i].word;
    p->kind = i;
    if (strcmp(word, words[i]) == 0) {
      *text = space + 1;
      return BS_OK;
    }
  }
  return unknown(err, "kind of kernel", word, words, BS_KERNEL_KINDS_);
}

/* A name's shape; or the word itself if it has digits, as shapes do. */
static int32_t shape_of(const char *word, const char **out, bs_error *err) {
  const char *names[PARTS];
  size_t n = 0;
  *out = word;
  for (; bs_kernel_shapes[n].name != NULL; n++) {
    names[n] = bs_kernel_shapes[n].name;
    if (strcmp(word, names[n]) == 0) {
      *out = bs_kernel_shapes[n].shape;
      return BS_OK;
    }
  }
  return strpbrk(word, "0123456789") != NULL ? BS_OK : unknown(err, "shape", word, names, n);
}

int32_t bs_kernel_problem_parse(const char *text, bs_kernel_problem *out, bs_error *err) {
  bs_kernel_problem p = {0};
  const char *rest = text;
  char parts[BS_KERNEL_TEXT], *save = NULL;
  int masked = 0;
  if (strlen(text) >= sizeof parts) return refuse(err, text, "it is longer than", "159 characters");
  int32_t rc = read_kind(&rest, &p, err);
  if (rc != BS_OK) return rc;
  snprintf(parts, sizeof parts, "%s", rest);
  if (parts[0] == '\0' || strstr(parts, "::") != NULL || parts[0] == ':' || parts[strlen(parts) - 1] == ':')
    return refuse(err, text, "a part is empty in", parts);
  const char *part = strtok_r(parts, ":", &save), *shape = NULL;
  rc = !bs_kernel_is_product(&p) ? shape_of(part, &shape, err) : BS_OK;
  if (rc == BS_OK) rc = read_sizes(text, shape != NULL ? shape : part, &p, err);
  while (rc == BS_OK && (part = strtok_r(NULL, ":", &save)) != NULL)
    rc = read_part(text, part, &p, &masked, err);
  if (rc == BS_OK) rc = complete(text, &p, err);
  if (rc == BS_OK) *out = p;
  return rc;
}

void bs_kernel_problem_text(const bs_kernel_problem *p, char *out, size_t size) {
  bs_text t = {0};
  if (p->kind != BS_KERNEL_SDPA) bs_text_printf(&t, "%s ", kinds[p->kind].word);
  if (!bs_kernel_is_product(p)) {
    bs_text_printf(&t, "b%lldh%lld", (long long)p->B, (long long)p->H);
    if (p->G != p->H) bs_text_printf(&t, "g%lld", (long long)p->G);
    bs_text_printf(&t, "s%lld", (long long)p->S);
    if (p->T != p->S) bs_text_printf(&t, "t%lld", (long long)p->T);
    bs_text_printf(&t, "d%lld", (long long)p->D);
    if (p->E != p->D) bs_text_printf(&t, "e%lld", (long long)p->E);
    bs_text_printf(&t, ":%s:%s", bs_dtype_name(p->dtype), bs_kernel_mask_name(p->causal));
    if (p->left > 0) bs_text_printf(&t, ":w%lld", (long long)p->left);
    if (p->right > 0) bs_text_printf(&t, ":r%lld", (long long)p->right);
  } else {
    bs_text_printf(&t, "n%lldk%lldb%lld:%s", (long long)p->N, (long long)p->K, (long long)p->B,
                   bs_dtype_name(p->dtype));
    if (p->columns != BS_COLUMNS_ALL) bs_text_printf(&t, ":%s", column_names[p->columns]);
  }
  snprintf(out, size, "%s", t.failed ? "?" : t.data);
  bs_text_free(&t);
}

int32_t bs_kernel_problem_vary(const bs_kernel_problem *p, const char *word, bs_kernel_problem *out,
                               bs_error *err) {
  static const char *const halves[] = {"gathered", "run", "masked"}; /* by enum bs_kernel_columns */
  static const uint32_t dense[BS_KERNEL_KINDS_] = {[BS_KERNEL_MATMUL24] = BS_KERNEL_MATMUL,
                                                   [BS_KERNEL_MATMUL24_DX] = BS_KERNEL_MATMUL_DX,
                                                   [BS_KERNEL_MATMUL24_DW] = BS_KERNEL_MATMUL_DW};
  char text[BS_KERNEL_TEXT];
  uint32_t half = 0;
  *out = *p;
  if (bs_word_read(BS_NAMES_DTYPE, bs_float_dtypes, BS_FLOAT_DTYPES, word, &out->dtype)) return BS_OK;
  if (bs_kernel_is_24(p)) out->kind = dense[p->kind];
  if (bs_kernel_is_24(p) && strcmp(word, "dense") == 0) return BS_OK;
  while (half < BS_COLUMNS_ && strcmp(word, halves[half]) != 0) half++;
  if (half < BS_COLUMNS_ && bs_kernel_is_product(p) && p->K % 4 == 0 && p->columns == BS_COLUMNS_ALL &&
      (half == BS_COLUMNS_ALL || out->kind == BS_KERNEL_MATMUL)) {
    out->columns = half;
    if (half == BS_COLUMNS_ALL) out->K = p->K / 2;
    return BS_OK;
  }
  bs_kernel_problem_text(p, text, sizeof text);
  bs_error_set(err, BS_USAGE, "BS-KERNEL-VARY", "there is no '@%.40s' of %s", word, text);
  bs_error_hint(
      err,
      "a dtype; of 2:4 weights dense; of a product whose K is of fours gathered, and of one forward "
      "run and masked");
  return BS_USAGE;
}

/* ---- lists -------------------------------------------------------------------------------------- */

int32_t bs_kernel_problems_expand(const char *const *words, size_t n_words, const char *const *dtypes,
                                  size_t n_dtypes, const char *const *mask_names, size_t n_masks,
                                  bs_kernel_problem **out, size_t *out_n, bs_error *err) {
  const size_t of_dtype = dtypes != NULL ? n_dtypes : 1, of_mask = mask_names != NULL ? n_masks : 1;
  *out = NULL;
  *out_n = 0;
  if (n_words == 0 || of_dtype == 0 || of_mask == 0) {
    bs_error_set(err, BS_USAGE, "BS-KERNEL-EMPTY", "nothing is selected: %zu shapes, %zu dtypes, %zu masks",
                 n_words, of_dtype, of_mask);
    bs_error_hint(err, "name at least one of each, as in: mission --dtype bf16 --mask full");
    return BS_USAGE;
  }
  bs_kernel_problem *list = calloc(n_words * of_dtype * of_mask, sizeof *list);
  if (list == NULL) return bs_no_memory(err, "problems");
  int32_t rc = BS_OK;
  for (size_t w = 0; rc == BS_OK && w < n_words; w++) {
    const int whole = strchr(words[w], ':') != NULL;
    for (size_t i = 0; rc == BS_OK && i < (whole ? 1 : of_dtype * of_mask); i++) {
      bs_kernel_problem *p = &list[*out_n];
      rc = bs_kernel_problem_parse(words[w], p, err);
      if (rc == BS_OK && !whole && dtypes != NULL) rc = read_dtype(dtypes[i / of_mask], &p->dtype, err);
      if (rc == BS_OK && !whole && mask_names != NULL)
        rc = read_mask(mask_names[i % of_mask], &p->causal, err);
      ++*out_n;
    }
  }
  if (rc != BS_OK) {
    free(list);
    *out_n = 0;
    return rc;
  }
  *out = list;
  return BS_OK;
}

/* ---- work --------------------------------------------------------------------------------------- */

void bs_kernel_keys(const bs_kernel_problem *p, int64_t s, int64_t *out_first, int64_t *out_end) {
  const int64_t at = s + (p->causal == BS_CAUSAL_LOWER_RIGHT ? p->T - p->S : 0);
  int64_t end = p->T;
  if (p->causal != BS_CAUSAL_NONE && at + 1 < end) end = at + 1;
  if (p->right > 0 && at + p->right < end) end = at + p->right;
  *out_first = p->left > 0 && at - p->left + 1 > 0 ? at - p->left + 1 : 0;
  *out_end = end > *out_first ? end : *out_first;
}

double bs_kernel_pairs(const bs_kernel_problem *p) {
  double pairs = 0.0;
  for (int64_t s = 0; s < p->S; s++) {
    int64_t first, end;
    bs_kernel_keys(p, s, &first, &end);
    pairs += (double)(end - first);
  }
  return pairs * (double)(p->B * p->H);
}

double bs_kernel_flops(const bs_kernel_problem *p) {
  if (bs_kernel_is_product(p))
    return (bs_kernel_is_24(p) ? 1.0 : 2.0) * (double)p->B * (double)p->N * (double)bs_kernel_w_cols(p);
  const int64_t width = p->kind == BS_KERNEL_SDPA ? p->D + p->E : 3 * p->D + 2 * p->E;
  return bs_kernel_pairs(p) * 2.0 * (double)width;
}

double bs_kernel_exps(const bs_kernel_problem *p) {
  return !bs_kernel_is_product(p) ? bs_kernel_pairs(p) : 0.0;
}

/* The number of keys that some query sees: a kernel may skip the others. */
static int64_t keys_seen(const bs_kernel_problem *p) {
  int64_t from = p->T, to = 0;
  for (int64_t s = 0; s < p->S; s++) {
    int64_t first, end;
    bs_kernel_keys(p, s, &first, &end);
    if (first < from && first < end) from = first;
    if (end > to && first < end) to = end;
  }
  return to > from ? to - from : 0;
}

double bs_kernel_bytes(const bs_kernel_problem *p) {
  const uint32_t of_in = BS_DTYPE_BYTES(p->dtype), of_out = BS_DTYPE_BYTES(bs_kernel_y_dtype(p));
  const double size = of_in, y_size = of_out;
  if (bs_kernel_is_product(p)) {
    const double whole = is_dw(p) ? y_size : size, of_w = bs_kernel_is_24(p) ? (whole + 0.25) / 2.0 : whole,
                 of_x = is_forward(p) || is_dw(p) ? size : y_size, of_y = is_forward(p) ? y_size : size;
    const int64_t cols = bs_kernel_w_cols(p);
    return (double)p->N * (double)cols * of_w + (double)(p->B * cols) * of_x + (double)(p->B * p->N) * of_y;
  }
  const double queries = (double)(p->B * p->H) * (double)p->S;
  const double keys = (double)(p->B * p->G) * (double)keys_seen(p);
  const double q = queries * (double)p->D, y = queries * (double)p->E, kv = keys * (double)(p->D + p->E);
  const double forward = (q + kv) * size + y * y_size;
  /* Backward: Y, dY and the sums of rows are read too, and dQ, dK, dV written. */
  return p->kind == BS_KERNEL_SDPA ? forward : forward + y * y_size + (q + kv) * size + 4.0 * queries;
}

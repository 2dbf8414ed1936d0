/* SPDX-License-Identifier: MIT
 * npy_header.c - strict parser of the .npy header: exactly the keys descr, fortran_order and shape in any
 * order, an optional trailing comma, spaces, and a final newline. Anything else Python would accept (other
 * literals, escapes, concatenated strings) is refused. Called by npy.c. */
#include "formats/npy_header.h"

#include <string.h>

#include "core/base/error.h"

typedef struct {
  const char *text;
  size_t size, at;
  bs_error *err;
} cursor;

#define HEADER_ID "BS-NPY-HEADER"

static void skip_space(cursor *c) {
  while (c->at < c->size && (c->text[c->at] == ' ' || c->text[c->at] == '\t' || c->text[c->at] == '\n'))
    c->at++;
}

static int peek(cursor *c) {
  skip_space(c);
  return c->at < c->size ? (unsigned char)c->text[c->at] : -1;
}

static int32_t unexpected(cursor *c, const char *id, const char *wanted) {
  int ch = peek(c);
  if (ch < 0)
    return bs_error_set(c->err, BS_INPUT, id, "header ends at byte %zu where %s is expected", c->at, wanted);
  if (ch < 0x20 || ch > 0x7e)
    return bs_error_set(c->err, BS_INPUT, id, "header byte %zu is 0x%02x where %s is expected", c->at, ch,
                        wanted);
  return bs_error_set(c->err, BS_INPUT, id, "header byte %zu is '%c' where %s is expected", c->at, ch,
                      wanted);
}

static int take(cursor *c, int ch) {
  if (peek(c) != ch) return 0;
  c->at++;
  return 1;
}

/* A quoted string of printable ASCII without escapes. */
static int32_t take_string(cursor *c, const char *id, char *out, size_t out_size) {
  int quote = peek(c);
  if (quote != '\'' && quote != '"') return unexpected(c, id, "a string");
  size_t n = 0;
  for (c->at++; c->at < c->size && c->text[c->at] != quote; c->at++) {
    unsigned char ch = (unsigned char)c->text[c->at];
    if (ch < 0x20 || ch > 0x7e || ch == '\\' || n + 1 >= out_size)
      return bs_error_set(c->err, BS_INPUT, id, "header string at byte %zu is not a short plain one", c->at);
    out[n++] = (char)ch;
  }
  out[n] = '\0';
  if (c->at >= c->size) return bs_error_set(c->err, BS_INPUT, id, "header string is not closed");
  c->at++;
  return BS_OK;
}

static int32_t parse_descr(cursor *c, bs_npy *out) {
  static const struct {
    const char *name;
    uint32_t dtype;
  } table[] = {{"<f8", BS_F64}, {"<f4", BS_F32}, {"<f2", BS_F16}, {"<i8", BS_I64},
               {"<i4", BS_I32}, {"|i1", BS_I8},  {"|u1", BS_U8},  {"|b1", BS_BOOL}};
  char descr[32];
  int ch = peek(c);
  if (ch == '[' || ch == '(')
    return bs_error_set(c->err, BS_INPUT, "BS-NPY-DTYPE", "a structured dtype is not a plain array");
  int32_t rc = take_string(c, "BS-NPY-DTYPE", descr, sizeof descr);
  if (rc != BS_OK) return rc;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (strcmp(descr, table[i].name) == 0) {
      out->dtype = table[i].dtype;
      return BS_OK;
    }
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (descr[0] == '>' && table[i].name[0] == '<' && strcmp(descr + 1, table[i].name + 1) == 0) {
      bs_error_set(c->err, BS_INPUT, "BS-NPY-ENDIAN", "dtype '%s' is big endian", descr);
      bs_error_hint(c->err, "a.astype(a.dtype.newbyteorder('<'))");
      return BS_INPUT;
    }
  bs_error_set(c->err, BS_INPUT, "BS-NPY-DTYPE", "dtype '%s' is not data", descr);
  bs_error_hint(c->err, "dtypes read: <f8 <f4 <f2 <i8 <i4 |i1 |u1 |b1");
  return BS_INPUT;
}

static int32_t parse_order(cursor *c, bs_npy *out) {
  static const char *const words[] = {"False", "True"};
  skip_space(c);
  for (uint32_t i = 0; i < 2; i++) {
    const size_t size = strlen(words[i]);
    if (c->size - c->at < size || memcmp(c->text + c->at, words[i], size) != 0) continue;
    c->at += size;
    out->fortran = i;
    return BS_OK;
  }
  return unexpected(c, "BS-NPY-ORDER", "True or False");
}

static int32_t parse_dim(cursor *c, int64_t *out_dim) {
  int ch = peek(c);
  size_t start = c->at;
  int64_t value = 0;
  if (ch < '0' || ch > '9') return unexpected(c, "BS-NPY-SHAPE", "a non-negative integer");
  while (c->at < c->size && c->text[c->at] >= '0' && c->text[c->at] <= '9') {
    if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
        __builtin_add_overflow(value, (int64_t)(c->text[c->at] - '0'), &value))
      return bs_error_set(c->err, BS_INPUT, "BS-NPY-SHAPE", "shape has a dimension above 2^63 - 1");
    c->at++;
  }
  if (c->text[start] == '0' && c->at - start > 1)
    return bs_error_set(c->err, BS_INPUT, "BS-NPY-SHAPE", "shape has a dimension with a leading zero");
  *out_dim = value;
  return BS_OK;
}

/* "()", "(3,)", "(3, 4)", "(3, 4,)": one dimension needs its comma, as in Python. */
static int32_t parse_shape(cursor *c, bs_npy *out) {
  int comma = 1;
  if (!take(c, '(')) return unexpected(c, "BS-NPY-SHAPE", "a tuple");
  out->rank = 0;
  while (peek(c) != ')') {
    int64_t dim = 0;
    if (!comma) return unexpected(c, "BS-NPY-SHAPE", "',' or ')'");
    int32_t rc = parse_dim(c, &dim);
    if (rc != BS_OK) return rc;
    if (out->rank == BS_NPY_MAX_DIMS)
      return bs_error_set(c->err, BS_INPUT, "BS-NPY-SHAPE", "shape has more than %d dimensions",
                          BS_NPY_MAX_DIMS);
    out->dims[out->rank++] = dim;
    comma = take(c, ',');
  }
  c->at++;
  if (out->rank == 1 && !comma)
    return bs_error_set(c->err, BS_INPUT, "BS-NPY-SHAPE",
                        "shape is not a tuple: one dimension needs a comma");
  return BS_OK;
}

int32_t bs_npy_parse_header(const char *text, size_t size, bs_npy *out, bs_error *err) {
  static const char *const names[] = {"descr", "fortran_order", "shape"};
  cursor c = {text, size, 0, err};
  unsigned seen = 0;
  int comma = 1;
  if (size == 0 || text[size - 1] != '\n')
    return bs_error_set(err, BS_INPUT, HEADER_ID, "header of %zu bytes does not end in a newline", size);
  if (!take(&c, '{')) return unexpected(&c, HEADER_ID, "'{'");
  while (peek(&c) != '}') {
    char key[32];
    unsigned which = 0;
    if (!comma) return unexpected(&c, HEADER_ID, "',' or '}'");
    int32_t rc = take_string(&c, HEADER_ID, key, sizeof key);
    if (rc != BS_OK) return rc;
    while (which < 3 && strcmp(key, names[which]) != 0) which++;
    if (which == 3) return bs_error_set(err, BS_INPUT, HEADER_ID, "unknown header key '%s'", key);
    if (seen & (1u << which)) return bs_error_set(err, BS_INPUT, HEADER_ID, "header key '%s' twice", key);
    seen |= 1u << which;
    if (!take(&c, ':')) return unexpected(&c, HEADER_ID, "':'");
    rc = which == 0 ? parse_descr(&c, out) : which == 1 ? parse_order(&c, out) : parse_shape(&c, out);
    if (rc != BS_OK) return rc;
    comma = take(&c, ',');
  }
  c.at++;
  for (unsigned i = 0; i < 3; i++)
    if (!(seen & (1u << i)))
      return bs_error_set(err, BS_INPUT, HEADER_ID, "header lacks the key '%s'", names[i]);
  if (peek(&c) >= 0) return unexpected(&c, HEADER_ID, "only padding");
  return BS_OK;
}

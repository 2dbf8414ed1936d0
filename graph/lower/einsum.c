/* SPDX-License-Identifier: MIT
 * einsum.c - Einsum of any number of operands: from left to right two at a time, each pair one `contract`
 * over views. Dims that both have and that are needed later lead; dims that are not needed later are summed.
 */
#include <string.h>

#include "graph/lower/rules.h"

/* An operand: a value and a letter for each of its dims. The dims of "..." have the numbers 1 to 6, counted
 * from the end. */
typedef struct term {
  uint32_t value;
  uint32_t n;
  char letters[BS_MAX_DIMS];
} term;

static int find(const term *t, char letter) {
  for (uint32_t i = 0; i < t->n; ++i) {
    if (t->letters[i] == letter) return (int)i;
  }
  return -1;
}

/* Reads the letters of one operand up to `end`. dots: how many dims "..." stands for. */
static void read_letters(build *b, const char *at, const char *end, int64_t dots, term *out) {
  out->n = 0;
  for (; at < end && b->rc == BS_OK; ++at) {
    if (*at == ' ') continue;
    if (*at == '.') {
      build_check(b, at + 2 < end && at[1] == '.' && at[2] == '.' && dots >= 0,
                  "the equation has a stray dot");
      for (int64_t i = dots; i > 0 && b->rc == BS_OK; --i) {
        if (out->n == BS_MAX_DIMS) build_refuse(b, 0, "the equation has more than 6 dims");
        if (b->rc == BS_OK) out->letters[out->n++] = (char)i;
      }
      at += 2;
      dots = -1;
      continue;
    }
    build_check(b, (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z'),
                "the equation has a sign that is no letter");
    if (out->n == BS_MAX_DIMS) build_refuse(b, 0, "the equation has more than 6 dims");
    if (b->rc == BS_OK) out->letters[out->n++] = *at;
  }
}

static int64_t count_letters(const char *at, const char *end) {
  int64_t n = 0;
  for (; at < end; ++at) n += (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z');
  return n;
}

/* A letter that comes twice in an operand: its diagonal, a view. */
static void take_diagonals(build *b, term *t) {
  for (uint32_t i = 0; i < t->n && b->rc == BS_OK; ++i) {
    for (uint32_t j = i + 1; j < t->n;) {
      if (t->letters[j] != t->letters[i]) {
        ++j;
        continue;
      }
      build_shape shape = build_shape_of(b, t->value);
      int64_t strides[BS_MAX_DIMS];
      build_check(b, shape.dims[i] == shape.dims[j], "a letter that comes twice has two sizes");
      if (b->rc != BS_OK) return;
      memcpy(strides, lower_value(b->c, t->value)->strides, sizeof strides);
      strides[i] += strides[j];
      memmove(&strides[j], &strides[j + 1], (shape.rank - j - 1) * sizeof strides[0]);
      memmove(&shape.dims[j], &shape.dims[j + 1], (shape.rank - j - 1) * sizeof shape.dims[0]);
      memmove(&t->letters[j], &t->letters[j + 1], shape.rank - j - 1);
      shape.rank -= 1;
      t->n -= 1;
      t->value = build_view(b, t->value, &shape, strides, 0);
    }
  }
}

/* Sums over the dims whose letter neither `other` nor `later` has. */
static void sum_unneeded(build *b, term *t, const term *other, const char *later) {
  uint32_t axes = 0;
  build_shape shape = {0};
  for (uint32_t i = 0; i < t->n; ++i) {
    if (strchr(later, t->letters[i]) == NULL && (other == NULL || find(other, t->letters[i]) < 0))
      axes |= 1u << i;
  }
  if (axes == 0 || b->rc != BS_OK) return;
  const uint32_t sum = build_reduce(b, BS_FOLD_SUM, t->value, axes, 1);
  for (uint32_t i = 0; i < t->n; ++i) {
    if (axes >> i & 1) continue;
    t->letters[shape.rank] = t->letters[i];
    shape.dims[shape.rank++] = build_dim(b, sum, i);
  }
  t->n = shape.rank;
  t->value = build_reshape(b, sum, &shape);
}

/* The operand in the order of `letters`; a dim that it lacks is a new one of 1. */
static void reorder(build *b, term *t, const char *letters, uint32_t n) {
  build_shape shape = {n, {0}};
  int64_t strides[BS_MAX_DIMS];
  if (b->rc != BS_OK) return;
  const gvalue *v = lower_value(b->c, t->value);
  for (uint32_t i = 0; i < n; ++i) {
    const int at = find(t, letters[i]);
    shape.dims[i] = at < 0 ? 1 : v->dims[at];
    strides[i] = at < 0 ? 0 : v->strides[at];
  }
  t->value = build_view(b, t->value, &shape, strides, 0);
  memcpy(t->letters, letters, n);
  t->n = n;
}

/* A dim of 1 repeats where the other operand has a larger one for its letter ("..." broadcasts). */
static void match_sizes(build *b, term *x, const term *y) {
  build_shape shape = build_shape_of(b, x->value);
  for (uint32_t i = 0; i < x->n; ++i) {
    const int at = find(y, x->letters[i]);
    if (at >= 0 && shape.dims[i] == 1) shape.dims[i] = build_dim(b, y->value, (uint32_t)at);
    build_check(b,
                at < 0 || build_dim(b, y->value, (uint32_t)at) == shape.dims[i] ||
                    build_dim(b, y->value, (uint32_t)at) == 1,
                "a letter has two sizes");
  }
  x->value = build_expand(b, x->value, &shape);
}

/* Appends to `out` the letters of x that y and `later` have or do not have, as in_y and in_later ask. */
static uint32_t choose(const term *x, const term *y, const char *later, int in_y, int in_later, char *out,
                       uint32_t n) {
  for (uint32_t i = 0; i < x->n; ++i) {
    const int has_y = find(y, x->letters[i]) >= 0, has_later = strchr(later, x->letters[i]) != NULL;
    if (has_y == in_y && (in_later < 0 || has_later == in_later)) out[n++] = x->letters[i];
  }
  return n;
}

static int64_t joined(build *b, const term *t, uint32_t first, uint32_t n) {
  return build_count(b, t->value, ((1u << n) - 1) << first);
}

/* Multiplies x and y into one operand, x. */
static void multiply(build *b, term *x, term *y, const char *later) {
  char lx[BS_MAX_DIMS * 2], ly[BS_MAX_DIMS * 2];
  sum_unneeded(b, x, y, later);
  sum_unneeded(b, y, x, later);
  match_sizes(b, x, y);
  match_sizes(b, y, x);
  if (b->rc != BS_OK) return;
  const uint32_t nz = choose(x, y, later, 1, 1, lx, 0), nm = choose(x, y, later, 0, -1, lx, nz) - nz;
  const uint32_t nk = choose(x, y, later, 1, 0, lx, nz + nm) - nz - nm;
  memcpy(ly, lx, nz);
  memcpy(ly + nz, lx + nz + nm, nk);
  const uint32_t nn = choose(y, x, later, 0, -1, ly, nz + nk) - nz - nk;
  reorder(b, x, lx, nz + nm + nk);
  reorder(b, y, ly, nz + nk + nn);
  const int64_t z = joined(b, x, 0, nz), m = joined(b, x, nz, nm), k = joined(b, x, nz + nm, nk),
                n = joined(b, y, nz + nk, nn);
  const build_shape sx = {3, {z, m, k}}, sy = {3, {z, k, n}};
  build_shape shape = {nz + nm + nn, {0}};
  if (shape.rank > BS_MAX_DIMS) build_refuse(b, 0, "the equation has more than 6 dims");
  if (b->rc != BS_OK) return;
  for (uint32_t i = 0; i < nz + nm; ++i) shape.dims[i] = build_dim(b, x->value, i);
  for (uint32_t i = 0; i < nn; ++i) shape.dims[nz + nm + i] = build_dim(b, y->value, nz + nk + i);
  const uint32_t product =
      build_contract(b, build_reshape(b, x->value, &sx), build_reshape(b, y->value, &sy), GNONE, 1);
  x->value = build_reshape(b, product, &shape);
  x->n = shape.rank;
  memcpy(x->letters, lx, nz + nm);
  memcpy(x->letters + nz + nm, ly + nz + nk, nn);
}

/* The output of an equation without "->": the dims of "...", then the letters that occur once, sorted. */
static void implicit_output(const term *terms, uint32_t n, int64_t dots, term *out) {
  out->n = 0;
  for (int64_t i = dots; i > 0; --i) out->letters[out->n++] = (char)i;
  for (int letter = 'A'; letter <= 'z'; ++letter) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; ++i) {
      for (uint32_t j = 0; j < terms[i].n; ++j) count += terms[i].letters[j] == letter;
    }
    if (count == 1 && out->n < BS_MAX_DIMS) out->letters[out->n++] = (char)letter;
  }
}

enum { MAX_TERMS = 8 };

int32_t lower_einsum(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  term terms[MAX_TERMS] = {{0}}, out = {0};
  const char *at = lower_text(node, "equation", ""), *arrow = strstr(at, "->"),
             *end = arrow != NULL ? arrow : at + strlen(at);
  const uint32_t n = node->n_in;
  int64_t most = 0;
  if (n > MAX_TERMS) build_refuse(&b, 0, "it has more than 8 operands");
  for (uint32_t i = 0; i < n && b.rc == BS_OK; ++i) {
    const char *comma = memchr(at, ',', (size_t)(end - at)), *stop = comma != NULL ? comma : end;
    terms[i].value = build_in(&b, i);
    build_check(&b, (comma != NULL) == (i + 1 < n), "the equation has another number of operands");
    const int64_t rank = build_rank(&b, terms[i].value), dots = rank - count_letters(at, stop);
    const int has_dots = memchr(at, '.', (size_t)(stop - at)) != NULL;
    build_check(&b, has_dots ? dots >= 0 : dots == 0, "an operand has another rank than its letters");
    read_letters(&b, at, stop, has_dots ? dots : -1, &terms[i]);
    if (has_dots && dots > most) most = dots;
    at = stop + 1;
  }
  if (b.rc != BS_OK) return b.rc;
  if (arrow != NULL) {
    read_letters(&b, arrow + 2, arrow + strlen(arrow), most, &out);
  } else {
    implicit_output(terms, n, most, &out);
  }
  for (uint32_t i = 0; i < out.n; ++i)
    build_check(&b, find(&out, out.letters[i]) == (int)i, "the output of the equation has a letter twice");
  for (uint32_t i = 0; i < n; ++i) take_diagonals(&b, &terms[i]);
  for (uint32_t i = 1; i < n && b.rc == BS_OK; ++i) {
    char later[MAX_TERMS * BS_MAX_DIMS + 1] = "";
    size_t used = out.n;
    memcpy(later, out.letters, out.n);
    for (uint32_t j = i + 1; j < n; ++j) {
      memcpy(later + used, terms[j].letters, terms[j].n);
      used += terms[j].n;
    }
    later[used] = 0;
    multiply(&b, &terms[0], &terms[i], later);
  }
  char kept[BS_MAX_DIMS + 1] = "";
  memcpy(kept, out.letters, out.n);
  sum_unneeded(&b, &terms[0], NULL, kept);
  for (uint32_t i = 0; i < out.n; ++i)
    build_check(&b, find(&terms[0], out.letters[i]) >= 0, "the output has a letter that no operand has");
  reorder(&b, &terms[0], out.letters, out.n);
  build_out(&b, 0, terms[0].value);
  return b.rc;
}

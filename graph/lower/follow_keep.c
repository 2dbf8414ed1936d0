/* SPDX-License-Identifier: MIT
 * follow_keep.c - reads the few numbers of shape arithmetic, and keeps them or their signs in the graph. */
#include <math.h>
#include <string.h>

#include "core/base/dtype.h"
#include "graph/lower/follow.h"

unsigned follow_value(const lower_ctx *c, uint32_t value) {
  if (value == GNONE) return KNOWN;
  const unsigned given = value < c->n_follows ? c->follows[value] : 0;
  return lower_is_const(c, value) ? given | KNOWN : given;
}

unsigned follow_input(const follow *f, uint32_t i) {
  return i < f->n_in ? follow_value(f->c, f->in[i]) : KNOWN;
}

static int follows(unsigned is) {
  return (is & KNOWN) && (is & (DIMS | NUMBERS));
}

/* ---- what is kept ---------------------------------------------------------------------------- */

void follow_keep(follow *f, int64_t number, uint32_t kind) {
  if (f->rc == BS_OK) f->rc = lower_keep(f->c, number, kind, f->err);
}

int follow_sign(double x) {
  return (x > 0) - (x < 0);
}

void follow_keep_sign(follow *f, double x) {
  follow_keep(f, follow_sign(x), GKEPT_LINEAR);
}

uint32_t follow_read_few(follow *f, uint32_t value, double *out) {
  unsigned char data[MOST * 8];
  if (value == GNONE || f->rc != BS_OK || !lower_is_const(f->c, value) || follow_value(f->c, value) & DIMS)
    return 0;
  const gvalue *v = lower_value(f->c, value);
  const int64_t n = graph_count(v);
  if (n < 1 || n > MOST || v->flags & (GV_QUANT | GV_JOINED)) return 0;
  f->rc = graph_read_const(f->c->g, value, data, f->err);
  for (int64_t i = 0; i < n && f->rc == BS_OK; i++) out[i] = bs_load_f64(v->dtype, data, i);
  return f->rc == BS_OK ? (uint32_t)n : 0;
}

void follow_keep_fixed(follow *f, uint32_t value) {
  double few[MOST];
  if (value == GNONE || !follows(follow_value(f->c, value))) return;
  const uint32_t n = follow_read_few(f, value, few);
  for (uint32_t i = 0; i < n; i++) {
    int64_t bits;
    memcpy(&bits, &few[i], sizeof bits);
    follow_keep(f, bits, GKEPT_FIXED);
  }
  if (n == 0) follow_keep(f, 0, GKEPT_UNKNOWN);
}

void follow_keep_all_fixed(follow *f) {
  for (uint32_t i = 0; i < f->n_in; i++) follow_keep_fixed(f, f->in[i]);
}

void follow_keep_numbers(follow *f, uint32_t value) {
  static const double exact = 9007199254740992.0;
  double few[MOST];
  const uint32_t n = follow_read_few(f, value, few);
  for (uint32_t i = 0; i < n; i++) {
    int64_t bits;
    memcpy(&bits, &few[i], sizeof bits);
    const int whole = fabs(few[i]) < exact && few[i] == floor(few[i]);
    follow_keep(f, whole ? (int64_t)few[i] : bits, whole ? GKEPT_LINEAR : GKEPT_FIXED);
  }
  if (n == 0) follow_keep(f, 0, GKEPT_UNKNOWN);
}

uint32_t follow_output(const follow *f, uint32_t i) {
  if (!lower_wants(f->node, i)) return GNONE;
  for (const lower_frame *at = f->c->frame; at != NULL; at = at->up)
    if (at->node == f->node) return at->outs[i];
  return f->c->value_of[f->node->out[i]];
}

uint32_t follow_read_pair(follow *f, uint32_t a, uint32_t b, double *x, double *y) {
  const uint32_t n = follow_read_few(f, f->in[a], x), m = follow_read_few(f, f->in[b], y);
  if (n == 0 || m == 0 || (n != m && n != 1 && m != 1)) return 0;
  const uint32_t all = n > m ? n : m;
  for (uint32_t i = 1; i < all; i++) {
    if (n == 1) x[i] = x[0];
    if (m == 1) y[i] = y[0];
  }
  return all;
}

void follow_keep_order(follow *f, uint32_t a, uint32_t b, uint32_t kind) {
  double x[MOST], y[MOST];
  if (b >= f->n_in || f->in[b] == GNONE) return;
  const uint32_t n = follow_read_pair(f, a, b, x, y);
  for (uint32_t i = 0; i < n; i++) follow_keep(f, follow_sign(x[i] - y[i]), kind);
  if (n == 0) follow_keep(f, 0, GKEPT_UNKNOWN);
}

void follow_keep_signs(follow *f, uint32_t i, double less, enum sign_kind kind) {
  double few[MOST];
  const uint32_t n = i < f->n_in ? follow_read_few(f, f->in[i], few) : 0;
  if (i >= f->n_in || !(follow_input(f, i) & NUMBERS)) return;
  for (uint32_t k = 0; k < n; k++) {
    const int sign = follow_sign(few[k] - less);
    follow_keep(f, kind == NEGATIVE ? sign < 0 : sign, kind == SIDE ? GKEPT_SIDE : GKEPT_LINEAR);
  }
  if (n == 0) follow_keep(f, 0, GKEPT_UNKNOWN);
}

/* SPDX-License-Identifier: MIT
 * blame.c - which pass made wrong numbers: the passes are put on one after the other, in their order, until
 * the outputs differ from the graph as written. The node is the first of that plan whose output differs from
 * the same value of the graph as written. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/run/verify.h"
#include "graph/split/method.h"

enum { MOST_OFF = 4 };

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a comparison");
}

/* *out_right: the outputs with these passes off are right. A plan that cannot be made is not. */
static int32_t try_passes(gverify *v, uint32_t off, int *out_right, bs_error *err) {
  bs_session *x = NULL;
  gworst worst = {.ratio = INFINITY};
  bs_error why = {.struct_size = (uint32_t)sizeof why};
  int32_t rc = gverify_beside(v, off, &x, &why);
  *out_right = 0;
  if (rc == BS_INTERNAL) return BS_OK;
  if (rc == BS_OK) rc = gverify_feed(v, x, &why);
  if (rc == BS_OK) rc = gverify_steps(v, x, NULL, NULL, &why);
  if (rc == BS_OK) rc = gverify_judge(v, x, &worst, &why);
  *out_right = rc == BS_OK && worst.ratio <= 1;
  bs_session_close(x);
  if (rc != BS_OK && err != NULL) *err = why;
  return rc;
}

/* The first pass with which the outputs are wrong, with those of `off` left out; GNONE: none. */
static int32_t first_wrong(gverify *v, uint32_t off, uint32_t *out_pass, bs_error *err) {
  int32_t rc = BS_OK;
  int right = 1;
  *out_pass = GNONE;
  for (uint32_t i = 0; gpass_get(i) != NULL && rc == BS_OK; i++) {
    if (off >> i & 1u) continue;
    rc = try_passes(v, off | (i + 1u < 32u ? UINT32_MAX << (i + 1u) : 0u), &right, err);
    if (rc != BS_OK || right) continue;
    *out_pass = i;
    return rc;
  }
  return rc;
}

/* ---- the node ------------------------------------------------------------------------------------ */

/* Numbers of each value of the graph as written, and what a plan makes of them. */
typedef struct comparing {
  gnumber **numbers; /* of each value; NULL: not computed */
  uint64_t *counts;
  uint32_t n;
  uint64_t bytes;
  double worst; /* of the nodes so far, relative to the largest number of the value */
  char *name;   /* of the node */
  size_t size;
  int failed;
} comparing;

/* Beyond this the search for a node is given up: a pass has been found already. */
static const uint64_t MOST_BYTES = UINT64_C(2) << 30;
static const double CLEARLY = 1e-3;

static void keep_step(void *user, const gbinding *b, const gstep *s) {
  comparing *c = user;
  const gnode *n = &b->g->nodes[s->node];
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (n->out[i] == GNONE || n->out[i] >= c->n) continue;
    const bs_tensor *t = s->args[n->n_in + i];
    c->bytes += 8 * tensor_elements(t);
    if (c->bytes > MOST_BYTES || gnumbers_read(t, &c->numbers[n->out[i]], NULL) != BS_OK) c->failed = 1;
    c->counts[n->out[i]] = tensor_elements(t);
    if (c->failed) return;
  }
}

/* The largest difference, relative to the largest number; INFINITY: of another kind. */
static double difference(const gnumber *got, const gnumber *want, uint64_t count, int is_float) {
  double off = 0, most = 0;
  for (uint64_t i = 0; i < count; i++) {
    const double a = is_float ? got[i].f : (double)got[i].i, b = is_float ? want[i].f : (double)want[i].i;
    if (!isfinite(a) || !isfinite(b)) {
      if (a != b && !(isnan(a) && isnan(b)) && isfinite(b)) return INFINITY;
      continue;
    }
    off = fmax(off, fabs(a - b));
    most = fmax(most, fabs(b));
  }
  return most > 0 ? off / most : off;
}

static void compare_step(void *user, const gbinding *b, const gstep *s) {
  comparing *c = user;
  const gnode *n = &b->g->nodes[s->node];
  for (uint32_t i = 0; i < n->n_out && c->worst < CLEARLY; i++) {
    const bs_tensor *t = s->args[n->n_in + i];
    gnumber *got = NULL;
    if (n->out[i] == GNONE || n->out[i] >= c->n || c->numbers[n->out[i]] == NULL) continue;
    if (tensor_elements(t) != c->counts[n->out[i]] || gnumbers_read(t, &got, NULL) != BS_OK) continue;
    const double off =
        difference(got, c->numbers[n->out[i]], c->counts[n->out[i]], bs_dtype_is_float(t->dtype));
    free(got);
    if (!(off > c->worst)) continue;
    c->worst = off;
    /* The last of the model's nodes that it was made of is the one whose value this is. */
    uint32_t origin = n->origin;
    while (origin != GNONE && b->g->origins[origin].next != GNONE) origin = b->g->origins[origin].next;
    snprintf(c->name, c->size, "%s", origin != GNONE ? graph_text_of(b->g, b->g->origins[origin].text) : "");
  }
}

/* The node with which the numbers of a plan with these passes off begin to differ; "": not found. */
static int32_t find_node(gverify *v, uint32_t off, char *out, size_t size, bs_error *err) {
  comparing c = {.n = v->wide->bound->g->n_values, .worst = 0, .name = out, .size = size};
  bs_session *x = NULL;
  c.numbers = calloc(c.n + 1u, sizeof *c.numbers);
  c.counts = calloc(c.n + 1u, sizeof *c.counts);
  out[0] = '\0';
  int32_t rc = c.numbers == NULL || c.counts == NULL ? no_memory(err) : BS_OK;
  if (rc == BS_OK) rc = gverify_beside(v, off, &x, err);
  if (rc == BS_OK) rc = gverify_feed(v, v->wide, err);
  if (rc == BS_OK) rc = gverify_steps(v, v->wide, keep_step, &c, err);
  if (rc == BS_OK) rc = gverify_feed(v, x, err);
  if (rc == BS_OK && !c.failed) rc = gverify_steps(v, x, compare_step, &c, err);
  bs_session_close(x);
  for (uint32_t i = 0; c.numbers != NULL && i < c.n; i++) free(c.numbers[i]);
  free(c.numbers);
  free(c.counts);
  return rc;
}

/* ---- the words ----------------------------------------------------------------------------------- */

/* "output 'y' is 3.1, not 2 as in the graph as written, at [0,3]" */
static void put_difference(const bs_verify_report *r, char *out, size_t size) {
  char at[120] = "";
  size_t used = 0;
  for (uint32_t d = 0; d < r->rank; d++)
    used += (size_t)snprintf(at + used, sizeof at - used, "%s%lld", d > 0 ? "," : "", (long long)r->at[d]);
  if (isfinite(r->value) && isfinite(r->expected))
    snprintf(out, size,
             "output '%.64s' differs from the graph as written by %.3g at [%s] (%.6g, right is %.6g)",
             r->output, fabs(r->value - r->expected), at, r->value, r->expected);
  else
    snprintf(out, size, "output '%.64s' differs from the graph as written at [%s]: it is %.6g, right is %.6g",
             r->output, at, r->value, r->expected);
}

static int32_t say_pass(const bs_verify_report *r, const char *words, bs_error *err) {
  char difference_text[320], node[120] = "";
  put_difference(r, difference_text, sizeof difference_text);
  if (r->node[0] != '\0') snprintf(node, sizeof node, " (node %.100s)", r->node);
  bs_error_set(err, BS_NUMERIC, "BS-MODEL-PASS", "%s: the pass %s made it%s", difference_text, r->pass, node);
  bs_error_hint(err, "%s gives the right numbers", words);
  return BS_NUMERIC;
}

static int32_t say_kernel(const gverify *v, const bs_verify_report *r, bs_error *err) {
  char text[320];
  put_difference(r, text, sizeof text);
  if (r->serves[0] != '\0') {
    bs_error_set(err, BS_NUMERIC, "BS-MODEL-KERNEL", "%s: no pass made it, the kernel %s did (node %.100s)",
                 text, r->serves, r->node);
    bs_error_hint(err, "--backend ref gives the right numbers");
    return BS_NUMERIC;
  }
  bs_error_set(err, BS_NUMERIC, "BS-MODEL-KERNEL", "%s: no pass made it, the backend %.40s did", text,
               v->s->core->backend);
  bs_error_hint(err, "--backend ref gives the right numbers; --show nodes looks for the node");
  return BS_NUMERIC;
}

/* Passes are left out, one after the other, until the outputs are right. */
static int32_t find_off(gverify *v, uint32_t pass, uint32_t *out_off, bs_error *err) {
  uint32_t off = v->s->passes_off;
  int32_t rc = BS_OK;
  for (int i = 0; i < MOST_OFF && pass != GNONE && rc == BS_OK; i++) {
    int right = 0;
    off |= 1u << pass;
    rc = try_passes(v, off, &right, err);
    if (rc != BS_OK || right) break;
    rc = first_wrong(v, off, &pass, err);
    if (i + 1 == MOST_OFF) off = UINT32_MAX;
  }
  *out_off = off;
  return rc;
}

/* "epilogue,fuse_norm" and "--no-pass epilogue --no-pass fuse_norm". */
static void put_off(uint32_t off, uint32_t before, char *names, size_t size, char *words, size_t words_size) {
  size_t used = 0, at = 0;
  names[0] = words[0] = '\0';
  if (off == UINT32_MAX) {
    snprintf(names, size, "all");
    snprintf(words, words_size, "--no-pass all");
    return;
  }
  for (uint32_t i = 0; gpass_get(i) != NULL; i++) {
    if (!((off & ~before) >> i & 1u) || used >= size || at >= words_size) continue;
    used += (size_t)snprintf(names + used, size - used, "%s%s", used > 0 ? "," : "", gpass_get(i)->name);
    at += (size_t)snprintf(words + at, words_size - at, "%s--no-pass %s", at > 0 ? " " : "",
                           gpass_get(i)->name);
  }
}

static int32_t blame_pass(gverify *v, uint32_t pass, bs_verify_report *io, bs_error *err) {
  bs_session *s = v->s;
  uint32_t off = 0;
  char words[200];
  int32_t rc = find_off(v, pass, &off, err);
  const uint32_t later = pass + 1u < 32u ? UINT32_MAX << (pass + 1u) : 0u;
  if (rc == BS_OK)
    rc = find_node(v, s->passes_off | later, s->verified[GVERIFIED_NODE], sizeof s->verified[0], err);
  if (rc != BS_OK) return rc;
  put_off(off, s->passes_off, s->verified[GVERIFIED_OFF], sizeof s->verified[0], words, sizeof words);
  io->pass = gpass_get(pass)->name;
  io->node = s->verified[GVERIFIED_NODE];
  io->off = s->verified[GVERIFIED_OFF];
  return say_pass(io, words, err);
}

/* One rank gives what many do not. */
static int32_t say_ranks(gverify *v, bs_verify_report *io, bs_error *err) {
  const gmethod *method = v->s->core->method;
  snprintf(v->s->verified[GVERIFIED_SERVES], sizeof v->s->verified[0], "%s",
           method != NULL ? method->text : "");
  io->serves = v->s->verified[GVERIFIED_SERVES];
  bs_error_set(err, BS_NUMERIC, "BS-GRAPH-SPLIT",
               "output %.60s differs from the graph as written on %u ranks, and does not on one", io->output,
               bs_world_size(v->s->rank->world));
  const int stored_zeros = method != NULL && strstr(method->text, "masked_split") != NULL &&
                           isnan(io->value) && v->judging.infinite;
  bs_error_hint(err, stored_zeros
                         ? "masked_split multiplies stored zeros: infinities in X become NaN there"
                         : "`bsrun model check` with the same words lists wrong nodes; where it lists "
                           "none, try another --comm or --method");
  return BS_NUMERIC;
}

int32_t gverify_blame(gverify *v, bs_verify_report *io, bs_error *err) {
  uint32_t pass = GNONE;
  int right = 0;
  int32_t rc = v->s->rank->inside ? try_passes(v, v->s->passes_off, &right, err) : BS_OK;
  if (rc == BS_OK && right) return say_ranks(v, io, err);
  if (rc == BS_OK) rc = try_passes(v, UINT32_MAX, &right, err);
  if (rc == BS_OK && right) rc = first_wrong(v, v->s->passes_off, &pass, err);
  if (rc != BS_OK) return rc;
  if (pass != GNONE) return blame_pass(v, pass, io, err);
  io->serves = v->s->verified[GVERIFIED_SERVES];
  io->node = v->s->verified[GVERIFIED_NODE];
  return say_kernel(v, io, err);
}

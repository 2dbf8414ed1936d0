/* SPDX-License-Identifier: MIT
 * layer_checks.c - checks of a layer that look at its pass: which implementation serves it, what it waits
 * for, what it plans again. */
#include "lab/diagnose/layer_checks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/case/ask.h"
#include "lab/error.h"

enum { CALLS = 24, HALF = CALLS / 2 };
static const double BLOCKED = 20e-6; /* of a call, in which its thread slept: less is not reported */

/* ---- implementations --------------------------------------------------------------------------- */

/* Compares the layer with a variant without some feature, and reports the cost of the feature. always: also
 * if it costs nothing here. */
static int32_t held_against(bs_diagnosis *d, const diag_layer *l, const bs_case *other, int always,
                            const char *what, const char *against, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  bs_pair_times t;
  const int32_t rc = diag_layer_pair(d, l, other, BS_ARM_FORWARD, &t, &why);
  if (rc == BS_UNSUPPORTED || rc == BS_UNAVAILABLE) { /* no other implementation serves it */
    bs_fact_text(d, against, "not served: %s", why.message);
    return BS_OK;
  }
  if (rc != BS_OK) {
    if (err != NULL) *err = why;
    return rc;
  }
  bs_fact(d, against, t.other, "s");
  if (always || bs_pair_is_slower(&t))
    bs_find_pair(d, &t, "%s: %.3g ms a pass; %s: %.3g ms", what, 1e3 * t.as_is, against, 1e3 * t.other);
  return BS_OK;
}

/* Products for which a choice took another implementation than the default. */
static int32_t forced_choices(const diag_layer *l, bs_text *out, size_t *out_n, bs_error *err) {
  json_t *open = json_array();
  bs_world *world = NULL;
  int32_t rc = open != NULL ? bs_tune_ask(&l->c, open, err) : bs_no_memory(err, "what was asked");
  if (rc == BS_OK) rc = bs_tune_rehearse(&l->c, &world, err);
  for (uint32_t i = 0; rc == BS_OK && i < bs_world_choice_count(world); i++) {
    bs_choice_info info = {.struct_size = sizeof info};
    rc = bs_world_choice_get(world, i, &info, err);
    const json_t *row;
    size_t k;
    json_array_foreach(open, k, row) {
      if (rc != BS_OK || strcmp(bs_tune_text(row, "key"), info.key) != 0) continue;
      if (info.chosen[0] == '\0' || strcmp(bs_tune_text(row, "default"), info.chosen) == 0) continue;
      bs_text_printf(out, "%s%s serves %.60s, the default is %s", (*out_n)++ > 0 ? "; " : "", info.chosen,
                     info.key, bs_tune_text(row, "default"));
    }
  }
  bs_world_destroy(world);
  json_decref(open);
  return rc;
}

static void put_chosen(void *user, const bs_op_candidate *c) {
  bs_op_answer *out = user;
  if (c->chosen) *out = *c->answer;
}

/* The level at which the backend would serve the whole product of the layer. */
static uint32_t level_of(const diag_layer *l) {
  const bs_layer_spec *s = &l->c.spec;
  const bs_tensor_desc x = {.struct_size = sizeof x, .dtype = s->x_dtype, .rank = 2, .dims = {s->B, s->K}},
                       y = {.struct_size = sizeof y, .dtype = s->y_dtype, .rank = 2, .dims = {s->B, s->N}};
  const bs_tensor_desc *const args[] = {&x, NULL, NULL, &y};
  const bs_op_query q = {.struct_size = sizeof q,
                         .op = "matmul",
                         .nargs = 4,
                         .args = args,
                         .accumulate = s->accumulate,
                         .weight_dtype = s->w_dtype};
  bs_op_answer answer = {.struct_size = sizeof answer, .level = BS_LEVEL_UNKNOWN};
  bs_op_explain(l->context, l->c.backend, &q, put_chosen, &answer, NULL);
  return answer.level;
}

int32_t diag_layer_fallback(bs_diagnosis *d, diag_layer *l, bs_error *err) {
  bs_text forced = {0};
  size_t n = 0;
  bs_case other = l->c;
  const int on_ref = strcmp(bs_innermost(l->c.backend), "ref") == 0;
  const uint32_t level = level_of(l);
  bs_fact_text(d, "served by", "%s", l->result.algorithms);
  bs_fact_text(d, "level", "%s", bs_level_name(level));
  int32_t rc = forced_choices(l, &forced, &n, err);
  if (rc == BS_OK && n > 0) {
    other.choices = NULL;
    other.n_choices = 0;
    rc = held_against(d, l, &other, 0, forced.data, "without choices", err);
  }
  bs_text_free(&forced);
  other = l->c;
  if (rc == BS_OK && on_ref) {
    other.backend = "cpu";
    other.choices = NULL;
    other.n_choices = 0;
    rc = held_against(d, l, &other, 1, "the backend ref computes all of it, in the order of its definition",
                      "on cpu", err);
  } else if (rc == BS_OK && level == BS_LEVEL_EMULATED) {
    char what[96];
    snprintf(what, sizeof what, "%s is emulated: widened before it is multiplied",
             bs_dtype_name(l->c.spec.x_dtype));
    other.spec.x_dtype = other.spec.w_dtype = other.spec.y_dtype = BS_F32;
    other.choices = NULL;
    other.n_choices = 0;
    rc = held_against(d, l, &other, 0, what, "in f32", err);
  }
  return rc;
}

/* ---- waits and copies of a pass -------------------------------------------------------------- */

int32_t diag_layer_waits(bs_diagnosis *d, diag_layer *l, bs_error *err) {
  diag_call calls[CALLS];
  diag_probe probe = {.n = CALLS, .calls = calls};
  bs_case c = l->c;
  double blocked[CALLS];
  uint64_t slept = 0, waits = 0, copied = 0;
  memset(calls, 0, sizeof calls);
  c.threads_per_rank = 1; /* a team's members may sleep between two products */
  for (int i = 0; i < CALLS; i++) calls[i].tokens = c.spec.B;
  const bs_backend *backend = NULL;
  void *state = NULL;
  int32_t rc = bs_find_backend(l->context, c.backend, &backend, &state, err);
  if (rc == BS_OK) rc = diag_probe_run(&c, &probe, err);
  if (rc != BS_OK) return rc;
  /* With a device's queue a thread sleeps after all work is queued, which is not an avoidable wait. */
  const int by_sleep = (backend->flags & BS_BACKEND_HOST_MEMORY) != 0;
  for (int i = 0; i < CALLS; i++) {
    blocked[i] = calls[i].sleeps > 0 ? calls[i].blocked_s : 0;
    slept += calls[i].sleeps > 0;
    waits += calls[i].waits;
    copied += calls[i].copied_bytes;
  }
  const double each = bs_median(blocked, CALLS);
  bs_fact(d, "passes in which a thread slept", (double)slept / CALLS, "of 1");
  bs_fact(d, "asleep in a pass, outside collectives", each, "s");
  bs_fact(d, "waits for the device in a pass", (double)waits / CALLS, "");
  bs_fact(d, "copied between device and host in a pass", (double)copied / CALLS, "bytes");
  if (l->proposal.chunks > 1) return bs_skip(d, "overlapped collectives are waited for on purpose");
  if (by_sleep && 2 * slept > CALLS && each > BLOCKED)
    bs_find(d, each, NULL,
            "in %llu of %d passes the rank's thread slept outside collectives, %.3g ms a pass: a host wait",
            (unsigned long long)slept, CALLS, 1e3 * each);
  if (waits > 0)
    bs_find(d, 0, NULL, "%.3g waits for the device and %.3g bytes through the host in a pass",
            (double)waits / CALLS, (double)copied / CALLS);
  return BS_OK;
}

int32_t diag_layer_staged(bs_diagnosis *d, diag_layer *l, bs_error *err) {
  const json_t *timings = l->result.ranks[0].timings;
  const json_t *sums = json_object_get(timings, "allreduce");
  const double each = 1e-3 * json_number_value(json_object_get(sums, "p50_ms"));
  (void)err;
  if (l->proposal.n_collectives == 0) return bs_skip(d, "the layer has no collective");
  bs_fact(d, "collectives in a pass", l->proposal.n_collectives, "");
  bs_fact(d, "time of collectives in a pass", each, "s");
  if (strstr(l->result.algorithms, "collectives@host/staged") != NULL)
    bs_find(d, each, "--only staged",
            "collectives go through the host's memory: no communicator has bound the memory of %s",
            l->c.backend);
  return BS_OK;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Calls of the script, which is made twice: 0 and 1 token, jumps by four and back. `most`: tokens that the
 * layer is built for. */
static void script(int64_t most, int64_t out[HALF]) {
  const int64_t b = most / 4 > 0 ? most / 4 : 1;
  const int64_t sizes[HALF] = {b, most, b, 1, most, 0, b / 2 > 0 ? b / 2 : 1, most, 1, b, 0, most};
  memcpy(out, sizes, sizeof sizes);
}

static const char *const reasons[BS_REPLAN_COUNT_] = {
    "first of its op", "the same query again", "dimension", "dtype", "stride", "attributes"};

/* Reports plans of the second half of a script, whose shapes have all occurred before. */
static void tell_plans(bs_diagnosis *d, const diag_probe *p) {
  uint64_t plans[BS_REPLAN_COUNT_] = {0}, all = 0;
  double seconds = 0;
  uint32_t with = 0;
  bs_text by = {0};
  const char *last = "";
  for (uint32_t i = p->n / 2; i < p->n; i++) {
    uint64_t here = 0;
    for (int k = 0; k < BS_REPLAN_COUNT_; k++) here += p->calls[i].plans[k];
    for (int k = 0; k < BS_REPLAN_COUNT_; k++) plans[k] += p->calls[i].plans[k];
    if (here > 0) last = p->calls[i].last;
    with += here > 0;
    all += here;
    seconds += p->calls[i].plan_s;
  }
  for (int k = 0; k < BS_REPLAN_COUNT_; k++)
    if (plans[k] > 0)
      bs_text_printf(&by, "%s%llu by %s", by.size > 0 ? ", " : "", (unsigned long long)plans[k], reasons[k]);
  const uint32_t half = p->n / 2;
  bs_fact(d, "plans made for shapes that had been there", (double)all, "");
  if (all > 0)
    bs_find(d, seconds / half, NULL,
            "%llu plans in %u of %u passes of shapes that had been there before (%s); the last: %s",
            (unsigned long long)all, with, half, by.data != NULL ? by.data : "", last);
  bs_text_free(&by);
}

/* Opens the layer for four times the tokens, if its workload can make so many; else unchanged. */
static int32_t open_wide(const diag_layer *l, diag_layer *out, bs_case *out_case, bs_error *err) {
  char tokens[32];
  bs_node *tree = bs_config_clone(l->config);
  snprintf(tokens, sizeof tokens, "%lld", (long long)(4 * l->c.spec.B));
  int32_t rc =
      tree != NULL ? bs_config_set(tree, "model.B", tokens, err) : bs_no_memory(err, "a configuration");
  if (rc == BS_OK) rc = diag_layer_open(l->context, tree, l->quiet_dir, out, err);
  bs_config_free(tree);
  *out_case = rc == BS_OK ? out->c : l->c;
  out_case->threads_per_rank = 1;
  return rc == BS_NO_MEMORY ? rc : BS_OK;
}

/* Calls of the widest layer: {tokens} in `calls`, twice the script. */
static uint32_t write_calls(int64_t most, diag_call *calls, bs_text *text) {
  int64_t sizes[HALF];
  script(most, sizes);
  for (uint32_t i = 0; i < CALLS; i++) {
    calls[i].tokens = sizes[i % HALF];
    if (i < HALF) bs_text_printf(text, "%s%lld", i > 0 ? ", " : "", (long long)sizes[i]);
  }
  return CALLS;
}

static double call_of(const diag_probe *p, int64_t tokens) {
  for (uint32_t i = p->n; i-- > 0;)
    if (p->calls[i].tokens == tokens) return p->calls[i].seconds;
  return NAN;
}

int32_t diag_layer_shapes(bs_diagnosis *d, diag_layer *l, bs_error *err) {
  diag_call calls[CALLS];
  diag_probe probe = {.calls = calls, .capture = (l->c.spec.flags & BS_LAYER_CAPTURE) != 0};
  diag_layer wide = {0};
  bs_case c;
  bs_text text = {0};
  if (l->c.spec.x_placement == BS_SPLIT_TOKENS || l->c.spec.y_placement == BS_SPLIT_TOKENS)
    return bs_skip(d, "the tokens are split over the ranks: their number is fixed");
  memset(calls, 0, sizeof calls);
  int32_t rc = open_wide(l, &wide, &c, err);
  probe.n = write_calls(c.spec.B, calls, &text);
  if (rc == BS_OK) rc = diag_probe_run(&c, &probe, err);
  if (rc == BS_OK) {
    bs_fact_text(d, "tokens of the calls, twice", "%s", text.data != NULL ? text.data : "");
    bs_fact_text(d, "built for", "%lld tokens at most; more need another build, %.3g s",
                 (long long)l->c.spec.B, l->build.seconds);
    if (c.spec.B != l->c.spec.B)
      bs_fact_text(d, "the calls are of a layer", "for %lld tokens", (long long)c.spec.B);
    bs_fact(d, "call of 0 tokens", call_of(&probe, 0), "s");
    bs_fact(d, "call of 1 token", call_of(&probe, 1), "s");
    tell_plans(d, &probe);
  }
  bs_text_free(&text);
  diag_layer_close(&wide);
  return rc;
}

int32_t diag_layer_capture(bs_diagnosis *d, diag_layer *l, bs_error *err) {
  diag_call calls[CALLS];
  diag_probe same = {.capture = 1, .n = 4, .calls = calls}, varied = {.capture = 1, .n = 8, .calls = calls};
  const int64_t b = l->c.spec.B;
  if ((l->c.spec.flags & BS_LAYER_CAPTURE) == 0)
    return bs_skip(d, "the layer is not captured: --set hardware.graph=true asks for it");
  memset(calls, 0, sizeof calls);
  for (int i = 0; i < CALLS; i++) calls[i].tokens = b;
  int32_t rc = diag_probe_run(&l->c, &same, err);
  if (rc != BS_OK) return rc;
  const double kept = calls[3].seconds;
  bs_fact_text(d, "passes of one shape", "%s", same.captured);
  if (strcmp(same.captured, "captured") != 0) {
    bs_find(d, 0, NULL, "the pass is never a graph of the device: %s", same.captured);
    return BS_OK;
  }
  if (b < 2) return BS_OK;
  memset(calls, 0, sizeof calls);
  for (int i = 0; i < CALLS; i++) calls[i].tokens = i % 2 == 0 ? b : b / 2;
  rc = diag_probe_run(&l->c, &varied, err);
  if (rc == BS_OK) bs_fact_text(d, "tokens changing between two calls", "%s", varied.captured);
  if (rc == BS_OK && strcmp(varied.captured, "captured") != 0)
    bs_fact(d, "a call without its graph", calls[7].seconds - kept, "s");
  return rc;
}

/* SPDX-License-Identifier: MIT
 * tell.c - a ladder as rows, and a rung's time in a sentence. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/ladder/ladder.h"
#include "lab/measure/predict.h"
#include "lab/measure/stats.h"
#include "lab/report/report.h"
#include "lab/store/env.h"
#include "lab/store/record.h"

const char *bs_ladder_pass_name(uint32_t pass) {
  static const char *const names[BS_ARM_WORKS_] = {"forward", "backward", "sgd", "adamw"};
  return pass < BS_ARM_WORKS_ ? names[pass] : "?";
}

/* The dense layer on one rank's cores, or else any dense rung: the comparison for a split, also if ranks that
 * are processes leave it out. */
static const bs_rung *dense_of(const bs_ladder *l) {
  const bs_rung *found = NULL;
  for (uint32_t i = 0; i < l->n; i++) {
    const bs_rung *r = &l->rungs[i];
    if ((r->refused.code == BS_OK || r->flops > 0) && r->c.world_size == 1) found = r;
  }
  return found;
}

static void share_text(uint64_t part, uint64_t whole, char *out, size_t size) {
  const double share = whole > 0 ? (double)part / (double)whole : 0.0;
  if (fabs(share - 1.0) < 1e-3)
    snprintf(out, size, "all");
  else if (fabs(share * 2 - 1.0) < 1e-3)
    snprintf(out, size, "half");
  else
    snprintf(out, size, "%.3g", share);
}

/* Seconds of 1e9 FLOPs of the pass by the rates of all cores, or of one; those of dX and dW have their own.
 */
static double seconds_each(const bs_kernel *k, uint32_t pass, int all) {
  const double rate = all ? k->flops_all : k->flops_core, times = k->backward > 0.0 ? k->backward : 1.0;
  if (!(rate > 0.0)) return 0.0;
  return 1e9 / rate *
         (pass == BS_ARM_FORWARD    ? 1.0
          : pass == BS_ARM_BACKWARD ? times
                                    : (1.0 + 2.0 * times) / 3.0);
}

/* The kernel of whole products, the comparison for that of 2:4 values: dense's, or any known one. */
static const bs_kernel *whole_kernel(const bs_ladder *l) {
  const bs_rung *dense = dense_of(l);
  if (dense != NULL && dense->kernel.source != NULL && !dense->kernel.of24) return &dense->kernel;
  for (uint32_t i = 0; i < l->n; i++)
    if (l->rungs[i].kernel.source != NULL && !l->rungs[i].kernel.of24) return &l->rungs[i].kernel;
  return NULL;
}

/* Explains why an equal number of products of 2:4 values takes longer: the rate of their kernel, and its
 * limit. */
static void kernel_text(const bs_ladder *l, const bs_rung *r, char *out, size_t size) {
  const bs_kernel *whole = whole_kernel(l), *k = &r->kernel;
  const bs_parts *p = &r->predicted.kernel;
  if (!r->predicted.has_kernel || !k->of24 || whole == NULL) return;
  const int all = r->c.world_size * r->c.threads_per_rank >= l->machine.threads;
  const double own = seconds_each(k, l->pass, all), other = seconds_each(whole, l->pass, all);
  if (!(own > 0.0 && other > 0.0)) return;
  const int by_bytes = p->memory > p->compute;
  snprintf(
      out, size,
      "; its 2:4 kernel %s makes %.3g GFLOP/s on %s, dense's %.3g, so a product takes %.3g times as long; "
      "%s limits it (%.3g ms, %s %.3g)",
      k->name, 1.0 / own, all ? "all cores" : "a core", 1.0 / other, own / other,
      by_bytes ? "reading" : "arithmetic", (by_bytes ? p->memory : p->compute) * 1e3,
      by_bytes ? "arithmetic" : "reading", (by_bytes ? p->compute : p->memory) * 1e3);
}

/* Writes one sentence on a rung's time and its advantage over the dense layer. */
static void sentence(const bs_ladder *l, const bs_rung *r, char *out, size_t size) {
  char products[24], bytes[24], sent[32];
  const bs_rung *dense = dense_of(l);
  if (r->refused.code != BS_OK) {
    snprintf(out, size, "refused: %.*s", (int)(size > 16 ? size - 16 : 0), r->refused.message);
    return;
  }
  const bs_parts *p = r->predicted.has_kernel ? &r->predicted.kernel : &r->predicted.bound;
  const double *own = r->sim.own, all_ps = r->sim.ps > 0 ? r->sim.ps : 1.0;
  const double work = p->compute > p->memory ? p->compute : p->memory;
  const double wire = r->is_simulated      ? (own[BS_SIM_LATENCY] + own[BS_SIM_WIRE]) / all_ps
                      : work + p->wire > 0 ? p->wire / (work + p->wire + p->host)
                                           : 0.0;
  share_text(r->flops, dense ? dense->flops : r->flops, products, sizeof products);
  share_text(r->weight_bytes, dense ? dense->weight_bytes : r->weight_bytes, bytes, sizeof bytes);
  if (r->c.world_size == 1 && l->simulated) {
    snprintf(out, size, "all products on one device, nothing sent");
  } else if (r->c.world_size == 1) {
    snprintf(out, size, "all products on %u thread%s, nothing sent", r->c.threads_per_rank,
             r->c.threads_per_rank == 1 ? "" : "s");
  } else if (r->collectives[0] == '\0') {
    snprintf(out, size, "a rank does %s of the products on %s of the weight bytes, nothing sent", products,
             bytes);
  } else {
    snprintf(out, size,
             "a rank does %s of the products on %s of the weight bytes; %s of %s takes %.2g %% of it",
             products, bytes, r->collectives, bs_bytes_text((double)r->wire_bytes, sent, sizeof sent),
             100.0 * wire);
  }
  const size_t used = strlen(out);
  kernel_text(l, r, out + used, size - used);
}

/* The advice of bs_comparison_next, with the options of `bsrun compare`. */
static const char *advice(const bs_comparison *c, char *out, size_t size) {
  if (c->cause == BS_UNCLEAR_BUILD)
    snprintf(out, size, "builds differ: sample more by --samples 600 --seconds 30");
  else if (c->cause == BS_UNCLEAR_FEW && c->needs > 0)
    snprintf(out, size, "needs about %zu pairs: --samples %zu --seconds %.0f", c->needs,
             c->needs < 20 ? 20 : c->needs, fmax(10.0, ceil(1.5 * c->needs_seconds)));
  else
    return bs_comparison_next(c, out, size);
  return out;
}

/* Adds the speedup of the row's candidate over the first: in the comparison the first one is the subject. */
static void add_comparison(json_t *row, const bs_ladder *l, const bs_rung *r) {
  char next[BS_LOOK_SENTENCE];
  const bs_rung *first = NULL;
  bs_comparison doubted = r->against;
  const bs_comparison *c = &doubted;
  bs_word_facts facts = {0};
  for (uint32_t i = 0; i < l->n; i++)
    if (l->rungs[i].measured && l->rungs[i].against.pairs == 0) first = &l->rungs[i];
  facts.below_bound = bs_against_of(&r->predicted, r->seconds).below_bound ||
                      (first != NULL && bs_against_of(&first->predicted, first->seconds).below_bound);
  bs_comparison_settle(&doubted, &facts);
  json_object_set_new(row, "against", json_string(first != NULL ? first->name : ""));
  json_object_set_new(row, "speedup", bs_record_number(1.0 / c->ratio));
  json_object_set_new(row, "speedup_low", bs_record_number(1.0 / c->high));
  json_object_set_new(row, "speedup_high", bs_record_number(1.0 / c->low));
  json_object_set_new(row, "pairs", json_integer((json_int_t)c->pairs));
  json_object_set_new(row, "builds", json_integer((json_int_t)c->builds));
  json_object_set_new(row, "verdict", json_string(bs_comparison_name(bs_word_turned(c->word))));
  if (c->word != BS_WORD_UNCLEAR && c->word != BS_WORD_NONE) return;
  json_object_set_new(row, "cause", json_string(bs_unclear_name(c->cause)));
  if (c->word == BS_WORD_NONE) json_object_set_new(row, "note", json_string(bs_unclear_name(c->cause)));
  if (c->word == BS_WORD_NONE) return;
  json_object_set_new(row, "next", json_string(advice(c, next, sizeof next)));
}

/* Adds the speedup over the first rung that could be simulated. */
static void add_simulated(json_t *row, const bs_ladder *l, const bs_rung *r) {
  const bs_rung *first = l->rungs;
  while (!first->is_simulated) first++;
  json_object_set_new(row, "simulated_us", bs_record_number(r->sim.ps * 1e-6));
  json_object_set_new(row, "limit", json_string(bs_simulated_limit(&r->sim)));
  json_object_set_new(row, "label", json_string(r->sim.label));
  json_object_set_new(row, "domain", json_string(bs_simulated_domain(&r->sim)));
  if (r == first || !(r->sim.ps > 0)) return;
  json_object_set_new(row, "against", json_string(first->name));
  json_object_set_new(row, "speedup", bs_record_number(first->sim.ps / r->sim.ps));
}

static json_t *row_of(const bs_ladder *l, const bs_rung *r) {
  char why[512];
  const bs_predicted *p = &r->predicted;
  json_t *row =
      json_pack("{s:o,s:s,s:s,s:i,s:i,s:I,s:f}", "place",
                r->place > 0 ? json_integer((json_int_t)r->place) : json_null(), "pass",
                bs_ladder_pass_name(l->pass), "candidate", r->name, "world_size", (int)r->c.world_size,
                "threads_per_rank", l->simulated ? 1 : (int)r->c.threads_per_rank, "wire_bytes",
                (json_int_t)r->wire_bytes, "wire_error", r->wire_error);
  if (row == NULL) return NULL;
  if (r->is_predicted) {
    json_object_set_new(row, "bound_ms", bs_record_number(1e3 * p->bound.total));
    json_object_set_new(row, "limit", json_string(p->limit));
    if (p->has_kernel) json_object_set_new(row, "predicted_ms", bs_record_number(1e3 * p->kernel.total));
  }
  if (r->is_simulated) add_simulated(row, l, r);
  if (r->measured) {
    json_object_set_new(row, "measured_ms", bs_record_number(1e3 * r->seconds));
    if (r->against.pairs > 0) add_comparison(row, l, r);
    const bs_against against = bs_against_of(p, r->seconds);
    bs_against_json(row, &against);
  }
  json_t *settings = json_array();
  for (uint32_t i = 0; i < r->n_settings; i++) json_array_append_new(settings, json_string(r->settings[i]));
  json_object_set_new(row, "settings", settings);
  sentence(l, r, why, sizeof why);
  json_object_set_new(row, "why", bs_env_string(why));
  return row;
}

json_t *bs_ladder_rows(const bs_ladder *l) {
  json_t *rows = json_array();
  for (uint32_t turn = 1; turn <= l->n + 1; turn++) { /* the last iteration: refused rungs, place 0 */
    for (uint32_t i = 0; i < l->n; i++) {
      if (l->rungs[i].place == turn % (l->n + 1)) json_array_append_new(rows, row_of(l, &l->rungs[i]));
    }
  }
  return rows;
}

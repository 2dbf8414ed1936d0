/* SPDX-License-Identifier: MIT
 * predict.c - see predict.h. */
#include "lab/measure/predict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "core/base/text.h"

static const double P = 6.0;       /* docs/dev/measuring.md: measured */
static const double HIDDEN = 0.25; /* of a forward: the least that a hidden part is taken for */

double bs_overlap(double a, double b) {
  const double most = a > b ? a : b, least = a > b ? b : a;
  return most > 0.0 ? most * pow(1.0 + pow(least / most, P), 1.0 / P) : 0.0;
}

/* With c and m the parts of the one token's forward: one^P = c^P + m^P, many^P = (f c)^P + (r m)^P. */
void bs_kernel_rates(const bs_two_points *t, double *out_flops, double *out_bytes) {
  const double f = pow(t->flops_many / t->flops_one, P), r = pow(t->bytes_many / t->bytes_one, P);
  const double one = pow(t->seconds_one, P), many = pow(t->seconds_many, P);
  const double least_c = pow(HIDDEN * t->seconds_many, P) / f, least_m = pow(HIDDEN * t->seconds_one, P);
  double c = f > r ? (many - r * one) / (f - r) : 0.0;
  if (!(c > least_c)) c = least_c;
  double m = one - c;
  if (!(m > least_m)) m = least_m;
  *out_flops = t->flops_one / pow(c, 1.0 / P);
  *out_bytes = t->bytes_one / pow(m, 1.0 / P);
}

/* A rank's share of a limit: never more than its cores have, nor than its part of all. */
static double share(double core, double all, double ranks, double threads) {
  return core * threads < all / ranks ? core * threads : all / ranks;
}

/* The measured rate of a rank if all cores work: as one rank's team, or as separate ranks. */
static double own_rate(const bs_machine *m, double core, double all, double team, double ranks,
                       double threads) {
  if (ranks * threads < m->threads) return share(core, all, ranks, threads);
  return ranks < 2 && threads > 1 && team > 0.0 ? team : all / ranks;
}

static double time_of(double work, double rate) {
  return rate > 0 ? work / rate : 0.0;
}

/* The wire time from the measured all-reduces of all ranks. Other collectives move half as much of a message.
 * Each of n ranks sends (n - 1) / n of it, which is less in a group. */
static double wire_time(const bs_machine *m, const bs_proposal *p, double ranks) {
  double wire = 0.0;
  for (uint32_t i = 0; i < p->n_collectives && i < BS_MAX_PROPOSED; ++i) {
    const double n = p->coll_ranks[i] > 1 ? p->coll_ranks[i] : ranks;
    const double moved = (1.0 - 1.0 / n) / (1.0 - 1.0 / ranks);
    const double part = p->coll_kind[i] == BS_COLL_ALL_REDUCE ? 1.0 : 0.5;
    wire += bs_machine_wire(m, (double)p->coll_payload[i] * part * moved);
  }
  return wire;
}

uint64_t bs_wire_bytes(const bs_proposal *p, uint32_t world_size) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < p->n_collectives && i < BS_MAX_PROPOSED; ++i) {
    const uint64_t n = p->coll_ranks[i] != 0 ? p->coll_ranks[i] : world_size, m = p->coll_payload[i];
    const uint64_t times = p->coll_kind[i] == BS_COLL_ALL_REDUCE ? 2u * (n - 1u) : n - 1u;
    bytes += m / n * times + m % n * times / n;
  }
  return bytes;
}

double bs_chunked(double product, double wire, uint32_t chunks) {
  const double c = chunks > 1 ? chunks : 1.0, most = product > wire ? product : wire;
  return product / c + (c - 1.0) / c * most + wire / c;
}

/* The time for sums of chunks, which overlap the next product. If each core has a rank, they use the
 * product's own core and read and write all bytes about twice. 0 if there are spare cores. */
static double beside(const bs_machine *m, const bs_proposal *p, double ranks, double threads) {
  double bytes = 0.0;
  if (p->chunks < 2 || ranks * (threads + 1.0) <= m->cores) return 0.0;
  for (uint32_t i = 0; i < p->n_collectives && i < BS_MAX_PROPOSED; ++i) bytes += (double)p->coll_payload[i];
  return time_of(2.0 * bytes, share(m->copy_core, m->copy_all, ranks, 1.0));
}

/* Sums in int8 steps read and write each value some times more (docs/methods.md): bytes. */
static double quantised_bytes(const bs_layer_spec *spec, const bs_proposal *p, uint32_t world_size) {
  if (!(p->wire_error > 0) || spec->reduce_dtype != BS_I8 || world_size < 2) return 0.0;
  return (double)spec->B * (double)spec->N * (4.0 + 1.0 + 2.0 + 5.0 / world_size);
}

/* The resources that one rank's forward needs; sums: of chunks, during the products. */
typedef struct needs {
  double flops, bytes, ranks, threads, sums;
  const bs_proposal *p;
} needs;

static bs_parts bound_of(const bs_machine *m, const needs *n) {
  bs_parts b = {.compute = time_of(n->flops, share(m->flops_core, m->flops_all, n->ranks, n->threads)),
                .memory = time_of(n->bytes, share(m->read_core, m->read_all, n->ranks, n->threads)),
                .wire = n->ranks > 1 ? wire_time(m, n->p, n->ranks) : 0.0,
                .host = m->host};
  b.total = bs_chunked(fmax(b.compute, b.memory) + n->sums, b.wire, n->p->chunks) + b.host;
  return b;
}

/* Passes within a tenth of each other count as the same, so a constant is known to a tenth at best; and
 * between two footprints memory may be as fast as at the faster one. */
static bs_machine fastest(const bs_machine *m) {
  bs_machine f = *m;
  const double more = 1.0 + fmax(m->spread, BS_SAME_PASSES), read = more * fmax(m->faster, 1.0);
  f.flops_core *= more, f.flops_all *= more;
  f.read_core *= read, f.read_all *= read;
  for (int i = 0; i < BS_EXCHANGES; ++i) f.exchange[i] /= more;
  f.host /= more;
  return f;
}

const char *bs_parts_limit(const bs_parts *b) {
  const double most = fmax(b->compute, b->memory);
  if (b->host > most && b->host > b->wire) return "host";
  if (b->wire > most) return "wire";
  return b->compute >= b->memory ? "compute" : "memory";
}

void bs_predict_rank(const bs_machine *m, const bs_kernel *k, const bs_layer_spec *spec, const bs_proposal *p,
                     uint32_t world_size, uint32_t threads, bs_predicted *out) {
  memset(out, 0, sizeof *out);
  const double ranks = world_size;
  const uint32_t x_bytes = BS_DTYPE_BYTES(spec->x_dtype), y_bytes = BS_DTYPE_BYTES(spec->y_dtype);
  const double activations = (double)spec->B * ((double)spec->K * x_bytes + (double)spec->N * y_bytes);
  const double again = p->chunks > 1 && p->chunk_tokens ? p->chunks - 1.0 : 0.0; /* each reads the weights */
  const needs n = {
      .flops = (double)p->flops,
      .bytes = (1.0 + again) * (double)p->weight_bytes + activations + quantised_bytes(spec, p, world_size),
      .ranks = ranks,
      .threads = threads,
      .sums = beside(m, p, ranks, threads),
      .p = p};
  const bs_machine best = fastest(m);
  bs_parts *b = &out->bound;
  *b = bound_of(m, &n);
  out->least = bound_of(&best, &n).total;
  out->limit = bs_parts_limit(b);
  if (k == NULL) return;
  out->has_kernel = 1;
  out->kernel = *b;
  out->kernel.compute =
      time_of(n.flops, own_rate(m, k->flops_core, k->flops_all, k->flops_team, ranks, threads));
  out->kernel.memory =
      time_of(n.bytes, own_rate(m, k->bytes_core, k->bytes_all, k->bytes_team, ranks, threads));
  const double product = bs_overlap(out->kernel.compute, out->kernel.memory);
  out->kernel.total = bs_chunked(product + n.sums, b->wire, p->chunks) + b->host;
}

int bs_predict_holds(const bs_case *c) {
  const bs_backend *backend = NULL;
  void *state = NULL;
  return bs_find_backend(c->context, c->backend, &backend, &state, NULL) == BS_OK &&
         (backend->flags & BS_BACKEND_HOST_MEMORY) != 0;
}

int32_t bs_predict_case(const bs_machine *m, const bs_kernel *k, const bs_case *c, bs_predicted *out,
                        bs_error *err) {
  memset(out, 0, sizeof *out);
  for (uint32_t r = 0; r < c->world_size; ++r) {
    bs_proposal proposal;
    bs_predicted p;
    const int32_t rc = bs_case_propose(c, r, &proposal, err);
    if (rc != BS_OK) return rc;
    bs_predict_rank(m, k, &c->spec, &proposal, c->world_size, c->threads_per_rank, &p);
    if (r == 0 || p.bound.total > out->bound.total) out->bound = p.bound, out->limit = p.limit;
    out->least = fmax(out->least, p.least);
    if (r == 0 || p.kernel.total > out->kernel.total) out->kernel = p.kernel;
    out->has_kernel = p.has_kernel;
  }
  if (!bs_predict_holds(c)) out->least = 0.0;
  return BS_OK;
}

int32_t bs_predict_footprint(const bs_case *c, double *out, bs_error *err) {
  *out = 0.0;
  for (uint32_t r = 0; r < c->world_size; ++r) {
    bs_proposal proposal;
    const int32_t rc = bs_case_propose(c, r, &proposal, err);
    if (rc != BS_OK) return rc;
    *out += (double)proposal.weight_bytes;
  }
  return BS_OK;
}

/* ---- against a measured time --------------------------------------------------------------------- */

static const double OFF = 1.15;

bs_against bs_against_of(const bs_predicted *p, double measured) {
  bs_against a = {0};
  const int holds = p->least > 0.0 && measured > 0.0;
  a.below_bound = holds && measured < p->least;
  const double share = holds ? p->bound.total / measured : 0.0;
  if (!a.below_bound && share <= 1.0 + BS_SAME_PASSES) a.share = fmin(share, 1.0);
  if (p->has_kernel && p->kernel.total > 0.0) a.ratio = measured / p->kernel.total;
  a.off = a.ratio > OFF || (a.ratio > 0.0 && a.ratio < 1.0 / OFF);
  return a;
}

static json_t *known(double value) {
  return value > 0.0 ? json_real(value) : json_null();
}

void bs_against_json(json_t *into, const bs_against *a) {
  json_object_set_new(into, "below_bound", json_boolean(a->below_bound));
  json_object_set_new(into, "share_of_limit", known(a->share));
  json_object_set_new(into, "measured_over_predicted", known(a->ratio));
}

/* Appends the causes that the facts allow, each after "; ". */
static void causes_of(const bs_against_facts *f, bs_text *out) {
  const bs_machine *m = f->machine;
  const uint32_t width = f->ranks * f->threads;
  if (f->disturbed > 0)
    bs_text_printf(out, "; %llu of %llu pairs were disturbed", (unsigned long long)f->disturbed,
                   (unsigned long long)f->pairs);
  if (width > m->cores)
    bs_text_printf(out, "; %u threads share %u cores", width, m->cores);
  else if (width > 1 && width < m->threads)
    bs_text_printf(out, "; rates are known of one core and of all %u, not of %u", m->threads, width);
  if (m->spread > BS_SAME_PASSES)
    bs_text_printf(out, "; passes of the machine's constants differed by %.0f %%", 100.0 * m->spread);
  if (m->measured_at[0] != '\0')
    bs_text_printf(
        out,
        "; the stored constants are of %.8s, when others took %.0f %% of the processors' time (bsrun doctor "
        "--measure takes new ones)",
        m->measured_at, 100.0 * fmax(m->others, 0.0));
  if (out->size == 0)
    bs_text_printf(out, "; no cause is known (the kernel's rates are of 64 tokens and of one)");
}

int bs_against_sentence(const bs_predicted *p, double measured, const bs_against_facts *f, char *out,
                        size_t size) {
  const bs_against a = bs_against_of(p, measured);
  bs_text causes = {0};
  if (a.below_bound) {
    snprintf(out, size,
             "%s: measured %.4g ms is below the bound %.4g ms: the constants are from another state of the "
             "machine, or the work was not done; the share of the limit is UNKNOWN",
             f->arm, 1e3 * measured, 1e3 * p->bound.total);
    return 1;
  }
  if (!a.off) return 0;
  causes_of(f, &causes);
  snprintf(out, size, "%s: measured %.4g ms, predicted %.4g ms (%.2f times as long): %s", f->arm,
           1e3 * measured, 1e3 * p->kernel.total, a.ratio, causes.failed ? "out of memory" : causes.data + 2);
  bs_text_free(&causes);
  return 1;
}

/* SPDX-License-Identifier: MIT
 * dispatch.c - pack and prepare: choose an implementation, remember it in the packed weight, make plans.
 * Called by core/world through bs_rank_api from the rank's own thread; run is in run.c. */
#include "core/op/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/op/knob.h"
#include "core/op/plan.h"
#include "core/op/quant.h"
#include "core/op/schema.h"
#include "core/op/select.h"
#include "core/op/sibling.h"
#include "core/partition/kept.h"

static uint64_t hash_word(uint64_t h, uint64_t word) {
  for (int byte = 0; byte < 8; byte++, word >>= 8) h = (h ^ (word & 0xffu)) * UINT64_C(0x100000001b3);
  return h;
}

/* FNV-1a over the runs of neighbouring columns, as long as they go: a run and a list of the same columns are
 * the same partition. */
static uint64_t hash_columns(const bs_partition *partition, int64_t count) {
  const int listed = partition != NULL && partition->kind == BS_PARTITION_GATHER;
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (int64_t i = 0, n = 0; i < count; i += n) {
    const uint32_t first = bs_op_partition_column(partition, i);
    n = listed ? 1 : count - i;
    while (i + n < count && bs_op_partition_column(partition, i + n) == first + (uint64_t)n) n++;
    h = hash_word(hash_word(h, first), (uint64_t)n);
  }
  return h;
}

/* Adds to the error what the plugin left out: the plugin's id, the function, and a message. */
static int32_t blame(bs_error *err, int32_t rc, const bs_thing *thing, const char *op, const char *verb) {
  if (err == NULL) return rc;
  const bs_op_impl *impl = thing->vtable;
  if (err->code == BS_OK || err->message[0] == '\0')
    bs_error_set(err, rc, "BS-OP-FAILED", "%s of %s@%s/%s failed without a message (%s)", verb, op,
                 impl->backend, impl->name, bs_status_name(rc));
  err->code = rc;
  if (err->plugin[0] == '\0') snprintf(err->plugin, sizeof err->plugin, "%s", thing->plugin);
  if (err->where[0] == '\0') bs_error_where(err, "%s@%s/%s %s", op, impl->backend, impl->name, verb);
  return rc;
}

/* If the backend itself cannot serve the query, sets the answer's text to the reasons. The fallback's own
 * text would hide them. */
static void say_why(const bs_op_host *host, const bs_op_query *query, const bs_candidates *candidates,
                    bs_op_answer *answer) {
  const int none = candidates->count == 0 || answer->level == BS_LEVEL_NO;
  if (!none && !candidates->rows[0].fallback) return;
  bs_candidates_reasons(candidates, none, answer->text, sizeof answer->text);
  if (answer->text[0] == '\0')
    snprintf(answer->text, sizeof answer->text, "no plugin offers %s on backend %s", query->op,
             host->backend);
}

int32_t bs_dispatch_supports(bs_op_host *host, const bs_op_query *query, bs_op_answer *out_answer,
                             bs_error *err) {
  int32_t rc = bs_op_check(query, err);
  if (rc != BS_OK) return rc;
  bs_candidates candidates;
  rc = bs_candidates_ask(host, query, &candidates, err);
  if (rc != BS_OK) return rc;
  bs_op_answer answer;
  memset(&answer, 0, sizeof answer);
  if (candidates.count == 0) {
    answer.reason = BS_REASON_NOT_BUILT;
  } else {
    answer = candidates.rows[0].answer;
    /* A form that the wanted one can serve must win over a form that it cannot. */
    if (candidates.measured) answer.score = 1000;
    if (candidates.wanted != NULL && !candidates.measured && answer.score > 999) answer.score = 999;
    bs_candidates_report(host, &candidates, -1);
  }
  say_why(host, query, &candidates, &answer);
  const uint32_t size = out_answer->struct_size < sizeof answer ? out_answer->struct_size : sizeof answer;
  answer.struct_size = out_answer->struct_size;
  memcpy(out_answer, &answer, size);
  bs_candidates_free(&candidates);
  return BS_OK;
}

/* ---- packed weights ------------------------------------------------------------------------- */

/* A quantised weight comes with the query, and any other from the source. */
static int32_t check_quant(const bs_op_query *q, const bs_source *w, bs_error *err) {
  if (w == NULL && q->quant->read != NULL) return BS_OK;
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-SOURCE",
                      "%s: a quantised weight comes by quant->read, and the source is NULL", q->op);
}

static int32_t check_source(const bs_op_query *q, const bs_source *w, bs_error *err) {
  if (q->quant != NULL) return check_quant(q, w, err);
  if (w == NULL || w->struct_size < sizeof *w || w->read == NULL || w->rows < 0 || w->cols < 0)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-SOURCE", "%s: the weight source is not usable",
                        q->op);
  const int64_t total = q->partition != NULL ? q->partition->total : w->cols;
  if (w->cols != total)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-SOURCE",
                        "%s: weight has %lld columns, the partition divides %lld", q->op, (long long)w->cols,
                        (long long)total);
  if (bs_op_schema_find(q->op) == NULL) return BS_OK;
  if (w->rows != q->args[3]->dims[1] || (q->partition == NULL && w->cols != q->args[0]->dims[1]))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-SOURCE",
                        "%s: weight is [%lld,%lld], X has %lld columns, Y %lld", q->op, (long long)w->rows,
                        (long long)w->cols, (long long)q->args[0]->dims[1], (long long)q->args[3]->dims[1]);
  return BS_OK;
}

static int32_t prepare_impl(bs_op_host *host, const bs_candidate *choice, const bs_op_query *query,
                            const char *key, bs_packed *packed, bs_plan **out_plan, bs_error *err);

static int32_t pack_with(bs_op_host *host, const bs_candidate *choice, const bs_op_query *query,
                         const bs_source *weights, bs_packed **out_packed, bs_error *err) {
  const bs_op_impl *impl = choice->impl;
  bs_op_query told = *query;
  told.knobs = choice->knobs;
  if (impl->pack == NULL || impl->packed_free == NULL) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-OP-PACK", "%s@%s/%s takes no packed weight", query->op,
                 impl->backend, impl->name);
    return BS_UNSUPPORTED;
  }
  bs_packed *packed = calloc(1, sizeof *packed);
  if (packed == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-OP-MEMORY", "no memory for a packed weight's record");
  packed->thing = choice->thing;
  packed->impl = impl;
  packed->refs = 1;
  packed->rows = query->quant != NULL ? query->quant->rows : weights->rows;
  packed->total = query->quant != NULL ? query->quant->cols : weights->cols;
  packed->count = query->partition != NULL ? query->partition->count : packed->total;
  packed->weight_dtype = query->weight_dtype;
  packed->length = bs_op_takes_kept(query->op) ? bs_op_kept_length(packed->count) : packed->count;
  packed->columns_hash = hash_columns(query->partition, packed->count);
  if (query->quant != NULL) packed->quant = *query->quant;
  packed->rehearsal = host->rehearse;
  int32_t rc = bs_op_kept_hash(query->kept, &packed->kept_hash, err);
  if (rc == BS_OK && !packed->rehearsal)
    rc = impl->pack(choice->thing->state, host->exec, &told, weights, &packed->object, &packed->bytes, err);
  if (rc != BS_OK) {
    free(packed);
    return blame(err, rc, choice->thing, query->op, "pack");
  }
  *out_packed = packed;
  return BS_OK;
}

/* UNKNOWN answers are settled by trying: pack and a plan that is thrown away. */
static int32_t pack_and_try(bs_op_host *host, const bs_candidate *choice, const bs_op_query *query,
                            const char *key, const bs_source *weights, bs_packed **out_packed,
                            bs_error *err) {
  bs_plan *trial = NULL;
  int32_t rc = pack_with(host, choice, query, weights, out_packed, err);
  if (rc != BS_OK || choice->answer.level != BS_LEVEL_UNKNOWN) return rc;
  bs_op_host quiet = *host;
  quiet.note_algorithm = NULL;
  rc = prepare_impl(&quiet, choice, query, key, *out_packed, &trial, err);
  if (rc != BS_OK) {
    bs_dispatch_packed_release(*out_packed);
    *out_packed = NULL;
    return rc;
  }
  bs_dispatch_release(trial);
  return BS_OK;
}

int32_t bs_dispatch_pack(bs_op_host *host, const bs_op_query *query, const bs_source *weights,
                         bs_packed **out_packed, bs_error *err) {
  *out_packed = NULL;
  int32_t rc = bs_op_check(query, err);
  if (rc != BS_OK) return rc;
  const bs_op_schema *schema = bs_op_schema_find(query->op);
  if (schema != NULL && !schema->needs_weights)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-PACK", "%s takes no packed weight", query->op);
  if (schema != NULL && strcmp(schema->packed_by, query->op) != 0) {
    bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-PACK", "%s uses weights that are packed for %s", query->op,
                 schema->packed_by);
    bs_error_hint(err, "pack with a query of %s that has BS_QUERY_TRAIN", schema->packed_by);
    return BS_INVALID_ARGUMENT;
  }
  rc = check_source(query, weights, err);
  if (rc != BS_OK) return rc;
  bs_kept_guard guard; /* positions come from a method: whatever is read of them is two of each four */
  bs_op_query guarded = *query;
  if (query->kept != NULL) {
    bs_kept_guard_init(&guard, query->kept);
    guarded.kept = &guard.kept;
    query = &guarded;
  }
  bs_candidates candidates;
  rc = bs_candidates_ask(host, query, &candidates, err);
  if (rc != BS_OK) return rc;
  rc = BS_UNSUPPORTED;
  for (uint32_t i = 0; i < candidates.count && candidates.rows[i].answer.level != BS_LEVEL_NO; i++) {
    bs_candidate *choice = &candidates.rows[i];
    bs_error why = BS_ERROR_INIT;
    rc = pack_and_try(host, choice, query, candidates.key, weights, out_packed, &why);
    if (rc == BS_OK) bs_candidates_report(host, &candidates, i);
    if (rc == BS_OK) break;
    /* Only UNKNOWN may turn out unsupported; any other failure is said, never papered over. */
    if (choice->answer.level != BS_LEVEL_UNKNOWN || rc != BS_UNSUPPORTED) {
      if (err != NULL) *err = why;
      bs_candidates_free(&candidates);
      return rc;
    }
    bs_candidate_reject(choice, &why);
  }
  if (rc != BS_OK) rc = bs_candidates_none(host, query, &candidates, err);
  bs_candidates_free(&candidates);
  return rc;
}

static int32_t rehearsed(const bs_op_impl *impl, bs_error *err) {
  return bs_error_set(err, BS_UNSUPPORTED, "BS-OP-REHEARSAL",
                      "%s@%s/%s was chosen in a rehearsal: there are no weights and no plan", impl->op,
                      impl->backend, impl->name);
}

int32_t bs_dispatch_packed_update(bs_packed *packed, const bs_tensor *delta, bs_error *err) {
  const bs_op_impl *impl = packed->impl;
  if (err != NULL) bs_error_clear(err);
  if (packed->rehearsal) return rehearsed(impl, err);
  if (impl->packed_update == NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-OP-UPDATE", "weights packed by %s@%s/%s cannot be updated",
                        impl->op, impl->backend, impl->name);
  int32_t rc = bs_op_check_view(impl, "BS-OP-UPDATE", "delta of packed_update", delta, 0, err);
  if (rc != BS_OK) return rc;
  if (delta->dtype != BS_F32 || delta->rank != 2 || delta->dims[0] != packed->rows ||
      delta->dims[1] != packed->length)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-UPDATE",
                        "delta is %s[%lld,%lld] (rank %u), the packed weight takes f32[%lld,%lld]",
                        bs_dtype_name(delta->dtype), (long long)delta->dims[0], (long long)delta->dims[1],
                        delta->rank, (long long)packed->rows, (long long)packed->length);
  rc = impl->packed_update(packed->object, delta, err);
  return rc == BS_OK ? BS_OK : blame(err, rc, packed->thing, impl->op, "packed_update");
}

int32_t bs_dispatch_packed_read(bs_packed *packed, int64_t row, bs_tensor *out, bs_error *err) {
  const bs_op_impl *impl = packed->impl;
  if (err != NULL) bs_error_clear(err);
  if (packed->rehearsal) return rehearsed(impl, err);
  if (impl->packed_read == NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-OP-READ", "weights packed by %s@%s/%s cannot be read back",
                        impl->op, impl->backend, impl->name);
  int32_t rc = bs_op_check_view(impl, "BS-OP-READ", "out of packed_read", out, 1, err);
  if (rc != BS_OK) return rc;
  if (out->rank != 2 || row < 0 || out->dims[0] < 0 || row > packed->rows ||
      out->dims[0] > packed->rows - row || out->dims[1] != packed->length)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-READ",
                        "rows %lld..+%lld of %lld columns asked, the packed weight is [%lld,%lld]",
                        (long long)row, (long long)out->dims[0], (long long)out->dims[1],
                        (long long)packed->rows, (long long)packed->length);
  rc = impl->packed_read(packed->object, row, out, err);
  return rc == BS_OK ? BS_OK : blame(err, rc, packed->thing, impl->op, "packed_read");
}

uint64_t bs_dispatch_packed_bytes(const bs_packed *packed) {
  return packed->bytes;
}

void bs_dispatch_packed_release(bs_packed *packed) {
  if (packed == NULL || --packed->refs > 0) return;
  if (!packed->rehearsal) packed->impl->packed_free(packed->object);
  free(packed);
}

/* ---- plans ---------------------------------------------------------------------------------- */

/* A step changes what is packed, of any op: [N,K_r], or the kept two of each four of a 2:4 weight. */
static int32_t check_of_weight(const bs_op_query *q, const bs_packed *packed, bs_error *err) {
  const int64_t *dims = q->args[0]->dims;
  const int64_t width =
      strcmp(packed->impl->op, "matmul24") == 0 ? (packed->count + 3) / 4 * 2 : packed->count;
  if (q->weight_dtype != packed->weight_dtype)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-PACKED", "%s: weights packed as %s, asked as %s",
                        q->op, bs_dtype_name(packed->weight_dtype), bs_dtype_name(q->weight_dtype));
  if (dims[0] == packed->rows && dims[1] == width) return BS_OK;
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-PACKED",
                      "%s: dW is [%lld,%lld], the packed weight [%lld,%lld]", q->op, (long long)dims[0],
                      (long long)dims[1], (long long)packed->rows, (long long)width);
}

static int32_t check_packed(const bs_op_query *q, const bs_packed *packed, bs_error *err) {
  const char *op = q->op;
  const bs_op_schema *schema = bs_op_schema_find(op);
  if (schema != NULL && schema->of_weight) return check_of_weight(q, packed, err);
  if (schema != NULL && strcmp(packed->impl->op, schema->packed_by) != 0)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-PACKED",
                        "weights packed for %s, %s needs those of %s", packed->impl->op, op,
                        schema->packed_by);
  if (q->weight_dtype != packed->weight_dtype)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-PACKED", "%s: weights packed as %s, asked as %s", op,
                        bs_dtype_name(packed->weight_dtype), bs_dtype_name(q->weight_dtype));
  if (q->quant != NULL && packed->quant.struct_size != 0 && !bs_quant_same_form(q->quant, &packed->quant))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-PACKED",
                        "%s: the weight was packed in another form (quant)", op);
  if (schema == NULL && q->partition == NULL) return BS_OK;
  const int64_t total = q->partition != NULL ? q->partition->total : bs_op_weight_columns(schema, q);
  const int64_t count = q->partition != NULL ? q->partition->count : total;
  if (total != packed->total || count != packed->count ||
      hash_columns(q->partition, count) != packed->columns_hash)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-PACKED",
                        "%s: packed columns are %lld of %lld, the query's are %lld of %lld%s", op,
                        (long long)packed->count, (long long)packed->total, (long long)count,
                        (long long)total, total == packed->total && count == packed->count ? ", others" : "");
  if (schema != NULL && bs_op_weight_rows(schema, q) != packed->rows)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-PACKED",
                        "%s: packed weight has %lld rows, %s %lld columns", op, (long long)packed->rows,
                        schema->n_arg == 3 ? "Y" : "dY", (long long)bs_op_weight_rows(schema, q));
  if (!bs_op_takes_kept(op)) return BS_OK;
  uint64_t kept = 0;
  const int32_t rc = bs_op_kept_hash(q->kept, &kept, err);
  if (rc != BS_OK || kept == packed->kept_hash) return rc;
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-PACKED",
                      "%s: the weights were packed with other positions", op);
}

/* Finds the implementation that serves `op` over the weight: its packer, or the packer's sibling. */
static int32_t server_of(const bs_op_host *host, const bs_packed *packed, const char *op,
                         bs_candidate *out_choice, bs_error *err) {
  const bs_op_impl *packer = packed->impl;
  const bs_thing *thing = NULL;
  if (strcmp(packer->op, op) == 0) {
    out_choice->thing = packed->thing;
    out_choice->impl = packer;
    return BS_OK;
  }
  const int32_t rc = bs_sibling_find(host, packed->thing, op, &thing, err);
  if (rc != BS_OK) return rc;
  if (thing == NULL) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-OP-SIBLING",
                 "weights packed by %s@%s/%s of plugin %s, which has no %s@%s/%s to use them", packer->op,
                 packer->backend, packer->name, packed->thing->plugin, op, packer->backend, packer->name);
    bs_error_hint(err, "pack with BS_QUERY_TRAIN: an implementation that has one takes the weight");
    return BS_UNSUPPORTED;
  }
  out_choice->thing = thing;
  out_choice->impl = thing->vtable;
  return BS_OK;
}

static int32_t run_rehearsed(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                             bs_error *err) {
  (void)plan, (void)args, (void)nargs, (void)stream;
  return bs_error_set(err, BS_UNSUPPORTED, "BS-OP-REHEARSAL",
                      "this plan was made in rehearse mode and cannot be executed");
}

static const char *sums_of(const bs_candidate *choice, const char *op) {
  const int product = strncmp(op, "matmul", 6) == 0 || strcmp(op, "scaled_matmul") == 0;
  return product && choice->answer.tolerance == BS_TOL_ACC_LOW ? BS_LOW_SUMS : "";
}

/* "matmul@cpu/dnnl (oneDNN 3.2)", with the knobs that were given "matmul@cpu/packed{tokens=48} (avx2)". */
static void note_algorithm(const bs_op_host *host, const bs_candidate *choice, const char *op) {
  if (host->note_algorithm == NULL) return;
  char text[640];
  const char *detail = choice->answer.text[0] != '\0' ? choice->answer.text : choice->answer.algo;
  const int told = choice->knobs != NULL;
  snprintf(text, sizeof text, "%s@%s/%s%s%s%s%s%s%s%s", op, choice->impl->backend, choice->impl->name,
           told ? "{" : "", told ? choice->knobs : "", told ? "}" : "", detail[0] != '\0' ? " (" : "", detail,
           detail[0] != '\0' ? ")" : "", sums_of(choice, op));
  host->note_algorithm(host->user, text);
}

/* Lets the host free the scratch when no plan uses it any more. */
static void scratch_settle(bs_op_host *host) {
  if (host->plans == 0 && host->unused != NULL) host->unused(host->user);
}

/* Takes the plan's echo and compares it with the knobs that the plan was given. */
static int32_t take_echo(bs_op_host *host, bs_plan *plan, const char *key, const char *knobs, bs_error *err) {
  bs_op_echo *echo = &plan->echo;
  if (plan->impl->echo == NULL) return BS_OK;
  memset(echo, 0, sizeof *echo);
  echo->struct_size = (uint32_t)sizeof *echo;
  echo->registers = -1; /* what the plugin leaves out is not known */
  echo->shared_bytes = echo->spill_bytes = -1;
  int32_t rc = plan->impl->echo(plan->object, echo);
  if (rc != BS_OK)
    return bs_error_set(err, rc, "BS-OP-KNOB-ECHO", "the plan's echo failed (%s)", bs_status_name(rc));
  echo->knobs[sizeof echo->knobs - 1] = '\0';
  echo->build[sizeof echo->build - 1] = '\0';
  rc = bs_knobs_echoed(plan->impl, knobs, echo, err);
  if (rc == BS_OK) rc = bs_choice_build(host->choices, plan->impl, echo, err);
  if (rc == BS_OK && echo->build[0] == '\0' && plan->thing->build != NULL)
    snprintf(echo->build, sizeof echo->build, "%s", plan->thing->build);
  if (rc == BS_OK) bs_choice_echo(host->choices, key, plan->thing, echo);
  plan->has_echo = rc == BS_OK;
  return rc;
}

/* The object of a plan, with its echo. */
static int32_t make_object(bs_op_host *host, const bs_candidate *choice, const bs_op_query *query,
                           const char *key, const bs_packed *packed, bs_plan *plan, bs_error *err) {
  bs_op_query told = *query;
  told.knobs = choice->knobs;
  int32_t rc = choice->impl->prepare(choice->thing->state, host->exec, &told,
                                     packed != NULL ? packed->object : NULL, &plan->object, err);
  if (rc != BS_OK) return rc;
  rc = take_echo(host, plan, key, choice->knobs, err);
  if (rc != BS_OK) choice->impl->plan_free(plan->object);
  return rc;
}

static int32_t prepare_impl(bs_op_host *host, const bs_candidate *choice, const bs_op_query *query,
                            const char *key, bs_packed *packed, bs_plan **out_plan, bs_error *err) {
  bs_plan *plan = bs_plan_new(host, choice->thing, query);
  if (plan == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-OP-MEMORY", "no memory for a plan of %s", query->op);
  plan->rehearsal = host->rehearse;
  host->reserved = 0;
  const double began = host->watch != NULL ? bs_clock_s() : 0;
  const int32_t rc = plan->rehearsal ? BS_OK : make_object(host, choice, query, key, packed, plan, err);
  plan->scratch = host->reserved;
  plan->host = host;
  if (rc == BS_OK && plan->scratch > 0) host->plans++;
  scratch_settle(host);
  if (plan->rehearsal) plan->run = run_rehearsed;
  if (rc != BS_OK) {
    free(plan);
    return blame(err, rc, choice->thing, query->op, "prepare");
  }
  if (packed != NULL) {
    plan->packed = packed;
    packed->refs++;
  }
  note_algorithm(host, choice, query->op);
  if (host->watch != NULL) bs_watch_plan(host->watch, query, bs_clock_s() - began);
  *out_plan = plan;
  return BS_OK;
}

static int32_t prepare_packed(bs_op_host *host, const bs_op_query *query, bs_packed *packed,
                              bs_plan **out_plan, bs_error *err) {
  int32_t rc = check_packed(query, packed, err);
  if (rc != BS_OK) return rc;
  if (err != NULL) bs_error_clear(err);
  bs_candidate choice = {0};
  char key[BS_CHOICE_KEY] = "";
  rc = server_of(host, packed, query->op, &choice, err);
  if (rc == BS_OK && host->choices != NULL) {
    bs_choice_key(host, query, key, sizeof key);
    rc = bs_candidate_knobs(host, key, choice.thing, &choice.knobs, err);
  }
  if (rc != BS_OK) return rc;
  bs_candidate_ask(&choice, query);
  if (choice.answer.level == BS_LEVEL_NO) {
    const bs_candidates only = {.rows = &choice, .count = 1};
    rc = bs_candidates_none(host, query, &only, err);
    bs_error_hint(err, "the weight was packed by %s; pack it again with this query", choice.impl->name);
    return rc;
  }
  return prepare_impl(host, &choice, query, key, packed, out_plan, err);
}

int32_t bs_dispatch_prepare(bs_op_host *host, const bs_op_query *query, bs_packed *packed, bs_plan **out_plan,
                            bs_error *err) {
  *out_plan = NULL;
  int32_t rc = bs_op_check(query, err);
  if (rc != BS_OK) return rc;
  const bs_op_schema *schema = bs_op_schema_find(query->op);
  if (schema != NULL && (packed != NULL) != (schema->needs_weights != 0))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-PACKED", "%s %s packed weight", query->op,
                        schema->needs_weights ? "needs a" : "takes no");
  if (packed != NULL) return prepare_packed(host, query, packed, out_plan, err);
  bs_candidates candidates;
  rc = bs_candidates_ask(host, query, &candidates, err);
  if (rc != BS_OK) return rc;
  rc = BS_UNSUPPORTED;
  for (uint32_t i = 0; i < candidates.count && candidates.rows[i].answer.level != BS_LEVEL_NO; i++) {
    bs_candidate *choice = &candidates.rows[i];
    bs_error why = BS_ERROR_INIT;
    rc = prepare_impl(host, choice, query, candidates.key, NULL, out_plan, &why);
    if (rc == BS_OK) bs_candidates_report(host, &candidates, i);
    if (rc == BS_OK) break;
    if (choice->answer.level != BS_LEVEL_UNKNOWN || rc != BS_UNSUPPORTED) {
      if (err != NULL) *err = why;
      bs_candidates_free(&candidates);
      return rc;
    }
    bs_candidate_reject(choice, &why);
  }
  if (rc != BS_OK) rc = bs_candidates_none(host, query, &candidates, err);
  bs_candidates_free(&candidates);
  return rc;
}

const bs_op_echo *bs_plan_echo(const bs_plan *plan) {
  return plan->has_echo ? &plan->echo : NULL;
}

int bs_dispatch_is_fallback(const bs_plan *plan) {
  return plan->host->fallback != NULL && strcmp(plan->impl->backend, plan->host->fallback) == 0;
}

uint64_t bs_dispatch_scratch(const bs_plan *plan) {
  return plan->scratch;
}

void bs_dispatch_release(bs_plan *plan) {
  if (plan == NULL) return;
  if (!plan->rehearsal) plan->impl->plan_free(plan->object);
  if (plan->scratch > 0) {
    plan->host->plans--;
    scratch_settle(plan->host);
  }
  bs_dispatch_packed_release(plan->packed);
  free(plan);
}

/* SPDX-License-Identifier: MIT
 * explain_op.c - `bsrun explain OP`: the query that a layer of these sizes makes, and every candidate's
 * answer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/explain.h"
#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/op/ask.h"
#include "core/op/knob.h"
#include "core/op/quant.h"
#include "lab/case/ask.h"
#include "lab/cores.h"
#include "lab/json.h"
#include "lab/lab.h"
#include "lab/measure/machine.h"
#include "lab/store/env.h"
#include "lab/tune/tune.h"
#include "lab/word.h"

static const bs_field fields[] = {
    {"mark", "", 0, 0},
    {"implementation", "IMPLEMENTATION", 0, 0},
    {"plugin", "PLUGIN", 0, 0},
    {"level", "LEVEL", 0, 0},
    {"score", "SCORE", BS_FIELD_RIGHT, 0},
    {"priority", "PRIORITY", BS_FIELD_RIGHT, 0},
    {"reason", "REASON", 0, 0},
    {"measured", "MEASURED", 0, 0},
    {"text", "WHY / HOW", 0, 0},
    {"reason_code", "CODE", BS_FIELD_WIDE, 0},
    {"chosen", "CHOSEN", BS_FIELD_WIDE, 0},
    {"algorithm", "ALGORITHM", BS_FIELD_WIDE, 0},
    {"workspace_bytes", "WORKSPACE", BS_FIELD_WIDE, 0},
    {"op", "OP", BS_FIELD_WIDE, 0},
    {"key", "KEY", BS_FIELD_WIDE, 0},
    {"summary", "WHAT", BS_FIELD_WIDE, 0},
    {"knobs", "KNOBS", BS_FIELD_WIDE, 0},
    {"given", "GIVEN", BS_FIELD_WIDE, 0},
};
/* The knobs of the implementation that serves, printed below the ladder. The formats for machines have them
 * in its row. */
static const bs_field knob_fields[] = {
    {"knob", "KNOB", 0, 0},     {"values", "VALUES", 0, 0}, {"default", "DEFAULT", 0, 0},
    {"in_use", "IN USE", 0, 0}, {"text", "WHAT", 0, 0},
};

/* A layer's sizes and what is asked of the op; owns partition and kept. */
typedef struct question {
  bs_op_sizes sizes;
  const bs_partition *partition;
  const bs_kept *kept;
  bs_quant quant;
  bs_op_question asked;
} question;

/* Fills the rank's part of the mask: the columns that an op of whole columns owns, or the half of each group
 * that an op of 2:4 weights keeps. The subject of the mask is opened where its weights or inputs decide. */
static int32_t take_part(const explained *x, const char *op, const bs_mask *mask, const bs_source *weights,
                         uint32_t rank, question *q, bs_error *err) {
  const uint32_t world = x->e.world_size != 0 ? x->e.world_size : 2;
  if (bs_op_needs_kept(op))
    return bs_kept_make(mask, q->sizes.N, q->sizes.K, weights, rank % 2, &q->kept, err);
  return bs_partition_make(mask, q->sizes.K, rank, world, &q->partition, err);
}

static int32_t read_part(const explained *x, const char *op, question *q, bs_error *err) {
  int64_t rank;
  const uint32_t world = x->e.world_size != 0 ? x->e.world_size : 2;
  const int kept = bs_op_needs_kept(op), given = args_has(x->a, "mask");
  bs_mask mask = x->e.mask;
  bs_subject subject;
  int32_t rc = args_integer(x->a, "rank", 0, 65535, 0, &rank, err);
  if (rc != BS_OK || (!given && !kept)) return rc;
  if (rank >= (int64_t)world) {
    bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--rank %lld: the world has %u ranks", (long long)rank,
                 world);
    bs_error_hint(err, "ranks count from 0");
    return BS_USAGE;
  }
  if (!given) rc = bs_mask_parse("random_2of4", NULL, NULL, &mask, err); /* of 2:4 weights: random ones */
  const int by_weights =
      given && kept && (mask.kind == BS_MASK_MAGNITUDE || mask.kind == BS_MASK_TRANSPOSABLE);
  if (rc != BS_OK || (mask.kind != BS_MASK_IMPORTANCE && !by_weights))
    return rc == BS_OK ? take_part(x, op, &mask, NULL, (uint32_t)rank, q, err) : rc;
  rc = bs_subject_open(x->context, &x->e, &subject, err);
  if (rc != BS_OK) return rc;
  q->sizes.N = subject.spec.N;
  q->sizes.K = subject.spec.K;
  rc = take_part(x, op, &subject.mask, &subject.w, (uint32_t)rank, q, err);
  bs_subject_close(&subject);
  return rc;
}

/* --weights: a storage dtype, or of an op of quantised weights a scheme. */
static int32_t read_weights(const explained *x, const char *op, question *q, bs_error *err) {
  bs_op_sizes *s = &q->sizes;
  if (!bs_op_takes_quant(op))
    return args_word(x->a, "weights", BS_NAMES_DTYPE, NULL, 0, &s->weight_dtype, err);
  const char *given = args_value(x->a, "weights");
  s->quant = &q->quant;
  if (bs_quant_scheme(given != NULL ? given : "w8g32", s->N, s->K, &q->quant, err) == BS_OK) return BS_OK;
  if (err != NULL) err->code = BS_USAGE; /* a word of the user's, and the exit code of one */
  return BS_USAGE;
}

static int32_t read_sizes(const explained *x, const char *op, question *q, bs_error *err) {
  const bs_experiment *e = &x->e;
  bs_op_sizes *s = &q->sizes;
  *s = (bs_op_sizes){.B = e->B,
                     .N = e->N,
                     .K = e->K > 0 ? e->K : e->N,
                     .dtype = e->dtype,
                     .out_dtype = e->dtype,
                     .weight_dtype = e->dtype,
                     .activation = e->activation,
                     .accumulate = e->accumulate,
                     .bias = (uint32_t)args_has(x->a, "bias"),
                     .residual = (uint32_t)args_has(x->a, "residual")};
  int32_t rc = args_word(x->a, "y", BS_NAMES_DTYPE, NULL, 0, &s->out_dtype, err);
  if (rc == BS_OK) rc = read_weights(x, op, q, err);
  if (rc == BS_OK) rc = args_word(x->a, "activation", BS_NAMES_ACTIVATION, NULL, 0, &s->activation, err);
  if (rc == BS_OK) rc = read_part(x, op, q, err);
  s->partition = q->partition;
  s->kept = q->kept;
  if (q->partition != NULL && !args_has(x->a, "gathered")) s->flags |= BS_QUERY_X_FULL;
  if (args_has(x->a, "deterministic") || strcmp(op, "matmul") == 0) s->flags |= BS_QUERY_DETERMINISTIC;
  if (args_has(x->a, "train")) s->flags |= BS_QUERY_TRAIN;
  if (args_has(x->a, "tokenwise")) s->flags |= BS_QUERY_TOKENWISE;
  return rc;
}

static int32_t ask(const explained *x, const char *op, question *q, bs_error *err) {
  static const char *const layer[] = {"activation", "bias", "residual"};
  char shown[64];
  int64_t workspace;
  if (explain_shape(x) != NULL) {
    bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "a shape is not for %s", op);
    bs_error_hint(err, "it is for attention, attention_dx and matmul24; --b, --n, --k give sizes of %s", op);
    return BS_USAGE;
  }
  if (bs_op_needs_partition(op) && !args_has(x->a, "mask")) {
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "%s needs --mask: the columns that it moves", op);
    bs_error_hint(err, "for example --mask complement_1100_0011 -P 2");
    return BS_USAGE;
  }
  for (size_t i = 0; i < sizeof layer / sizeof layer[0]; i++) {
    if (!args_has(x->a, layer[i]) || bs_op_takes(op, layer[i])) continue;
    return bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "%s is not for %s: the op has none",
                        args_shown(x->a, layer[i], shown), op);
  }
  int32_t rc = args_integer(x->a, "workspace", 0, INT64_MAX, 0, &workspace, err);
  if (rc == BS_OK) rc = read_sizes(x, op, q, err);
  if (rc == BS_OK) rc = bs_op_ask(op, &q->sizes, &q->asked, err);
  if (rc != BS_OK) return rc;
  q->asked.query.workspace_limit = (uint64_t)workspace;
  return BS_OK;
}

/* The name as choices write it: "cpu:packed" for matmul@cpu/packed. */
static void candidate_name(const bs_op_candidate *c, char *out, size_t size) {
  const char *slash = strchr(c->name, '/');
  snprintf(out, size, "%s:%s", c->plugin, slash != NULL ? slash + 1 : c->name);
}

static void on_note(void *user, const char *text) {
  const explained *x = user;
  bsrun_note(args_has(x->a, "quiet"), text);
}

/* {knob, values, default, given, text}; given "": nothing. */
static json_t *knobs_of(const bs_op_candidate *c) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < c->n_knobs; i++) {
    const bs_knob *k = c->knobs[i];
    json_array_append_new(list, json_pack("{s:o,s:o,s:o,s:o,s:o}", "knob", bs_json_of_text(k->name), "values",
                                          bs_json_of_text(k->values), "default", bs_json_of_text(k->standard),
                                          "in_use", json_string(""), "text", bs_json_of_text(k->summary)));
  }
  return list;
}

static void on_candidate(void *user, const bs_op_candidate *c) {
  const bs_op_answer *answer = c->answer;
  char name[256];
  json_t *row = json_object();
  candidate_name(c, name, sizeof name);
  json_object_set_new(row, "candidate", bs_json_of_text(name));
  json_object_set_new(row, "mark", json_string(c->chosen ? "*" : ""));
  json_object_set_new(row, "implementation", bs_json_of_text(c->name));
  json_object_set_new(row, "plugin", bs_json_of_text(c->plugin));
  json_object_set_new(row, "level", json_string(bs_level_name(answer->level)));
  json_object_set_new(row, "score", json_integer(answer->score));
  json_object_set_new(row, "priority", json_integer(c->priority));
  json_object_set_new(row, "reason",
                      json_string(answer->level == BS_LEVEL_NO ? bs_reason_name(answer->reason) : ""));
  json_object_set_new(row, "text", bs_json_of_text(answer->text));
  json_object_set_new(row, "reason_code", json_integer(answer->reason));
  json_object_set_new(row, "chosen", json_boolean(c->chosen));
  json_object_set_new(row, "algorithm", bs_json_of_text(answer->algo));
  json_object_set_new(row, "workspace_bytes", json_integer((json_int_t)answer->workspace));
  json_object_set_new(row, "summary", bs_json_of_text(c->summary));
  json_object_set_new(row, "key", bs_json_of_text(c->key));
  json_object_set_new(row, "measured", json_string(""));
  json_object_set_new(row, "knobs", knobs_of(c));
  json_object_set_new(row, "given", bs_json_of_text(c->given));
  json_array_append_new(user, row);
}

/* Plugins that offer the op here and could not be asked. */
static void add_unasked(json_t *rows, const bs_context *context, const char *op, const char *backend) {
  char wanted[192];
  snprintf(wanted, sizeof wanted, "%s@%s", op, backend);
  for (uint32_t i = 0; i < bs_plugin_count(context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(context, i, &info, NULL) != BS_OK || !plugins_offers(info.things, "op", wanted))
      continue;
    if (info.state != BS_PLUGIN_REFUSED && info.state != BS_PLUGIN_UNAVAILABLE) continue;
    json_t *row = json_object();
    json_object_set_new(row, "mark", json_string(""));
    json_object_set_new(row, "implementation", bs_json_of_text(wanted));
    json_object_set_new(row, "plugin", bs_json_of_text(info.id));
    json_object_set_new(row, "level",
                        json_string(info.state == BS_PLUGIN_REFUSED ? "refused" : "unavailable"));
    json_object_set_new(row, "text", bs_json_of_text(info.why));
    json_object_set_new(row, "chosen", json_false());
    json_array_append_new(rows, row);
  }
}

/* The implementations that can serve the product, in either form of X: they have one key in the tuning file.
 */
typedef struct product {
  const json_t *plugins;
  json_t *candidates;
} product;

static void add_candidate(void *user, const bs_op_candidate *c) {
  product *p = user;
  char name[256], how[256];
  size_t i;
  const json_t *row;
  const bs_op_answer *answer = c->answer;
  if (answer->level == BS_LEVEL_NO) return;
  candidate_name(c, name, sizeof name);
  json_array_foreach(p->candidates, i, row) {
    if (strcmp(bs_get_text(row, "name"), name) == 0) return;
  }
  snprintf(how, sizeof how, "%s%s%s", answer->algo, answer->text[0] != '\0' ? ", " : "", answer->text);
  json_array_append_new(p->candidates, bs_tune_candidate(p->plugins, name, how));
}

static json_t *asked_of(const explained *x, const bs_op_query *query, const char *key, bs_error *err) {
  json_t *plugins = NULL;
  if (bs_env_plugins(x->context, &plugins, err) != BS_OK) return NULL;
  product p = {plugins, json_array()};
  bs_op_explain(x->context, x->e.backend, query, add_candidate, &p, NULL);
  if (strcmp(query->op, "matmul") == 0 && (query->flags & BS_QUERY_X_FULL) != 0) {
    bs_tensor_desc own = *query->args[0];
    const bs_tensor_desc *of[4] = {&own, query->args[1], query->args[2], query->args[3]};
    bs_op_query gathered = *query;
    own.dims[1] = own.strides[0] = query->partition->count;
    gathered.args = of;
    gathered.flags &= ~(uint32_t)BS_QUERY_X_FULL;
    bs_op_explain(x->context, x->e.backend, &gathered, add_candidate, &p, NULL);
  }
  json_decref(plugins);
  return json_pack("{s:s,s:o}", "key", key, "candidates", p.candidates);
}

static void mark_rows(json_t *rows, const json_t *entry, int pinned) {
  char words[256];
  size_t i;
  json_t *row;
  json_array_foreach(rows, i, row) {
    const int chosen = json_is_true(json_object_get(row, "chosen"));
    const char *said = pinned ? (chosen ? "pinned" : "")
                              : bs_tune_words(entry, bs_get_text(row, "candidate"), words, sizeof words);
    json_object_set_new(row, "measured", json_string(said));
  }
}

/* The site of the query: a rank's threads, the ranks. */
static bs_op_site site_of(const explained *x) {
  const uint32_t ranks = x->e.world_size != 0 ? x->e.world_size : args_has(x->a, "mask") ? 2 : 1;
  const uint32_t share = bs_machine_cores() / ranks;
  const bs_op_site site = {.struct_size = sizeof site,
                           .threads = x->e.threads_per_rank != 0 ? x->e.threads_per_rank : share,
                           .world_size = ranks};
  return site;
}

/* The ladder by the defaults, then, where a choice is pinned or known, as it changes the ladder. */
static int32_t ladder(const explained *x, const bs_op_query *query, json_t *rows, bs_error *err) {
  bs_op_site site = site_of(x);
  bs_text choice = {0};
  bs_tuner *tuner = NULL;
  const bs_tuner_options options = {.path = x->tune, .note = on_note, .note_user = (void *)(uintptr_t)x};
  int32_t rc = bs_op_explain_at(x->context, x->e.backend, &site, query, on_candidate, rows, err);
  if (rc != BS_OK) return rc;
  rc = bs_tuner_open(x->context, &options, &tuner, err);
  const char *key = bs_get_text(json_array_get(rows, 0), "key"), *pinned = bs_tune_pinned(&x->e, key);
  json_t *asked = rc == BS_OK ? asked_of(x, query, key, err) : NULL;
  const json_t *entry = asked != NULL && pinned == NULL ? bs_tuner_find(tuner, asked) : NULL;
  if (pinned != NULL || entry != NULL) {
    bs_text_printf(&choice, "%s -> %s", bs_get_text(asked, "key"),
                   pinned != NULL ? pinned : bs_get_text(entry, "choice"));
    const char *const choices[] = {choice.data};
    site.choices = choices;
    site.n_choices = 1;
    json_array_clear(rows);
    rc = choice.failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory")
                       : bs_op_explain_at(x->context, x->e.backend, &site, query, on_candidate, rows, err);
    mark_rows(rows, entry, pinned != NULL);
  }
  bs_text_free(&choice);
  json_decref(asked);
  bs_tuner_close(tuner);
  return rc;
}

/* Prepared as it would be run, on one rank with the same threads: what its plan says of itself goes into the
 * rows of its knobs. Nothing is said of weights that are large, and of devices that are not here. */
static void put_in_use(const explained *x, const bs_op_query *query, json_t *row) {
  bs_op_echo echo;
  size_t i;
  json_t *knob;
  char choice[1400], value[BS_KNOB_VALUE];
  json_t *knobs = json_object_get(row, "knobs");
  const char *given = bs_get_text(row, "given");
  if (json_array_size(knobs) == 0) return;
  snprintf(choice, sizeof choice, "%s%s%s%s", bs_get_text(row, "candidate"), given[0] != '\0' ? "{" : "",
           given, given[0] != '\0' ? "}" : "");
  if (bs_tune_echo(x->context, x->e.backend, site_of(x).threads, query, choice, &echo, NULL) != BS_OK) return;
  json_array_foreach(knobs, i, knob) {
    const char *name = bs_get_text(knob, "knob");
    if (bs_knob_said(echo.knobs, name, value)) json_object_set_new(knob, "in_use", bs_json_of_text(value));
  }
}

static int32_t print_knobs(const explained *x, const json_t *rows, bs_error *err) {
  const json_t *row = json_array_get(rows, 0), *knobs = json_object_get(row, "knobs");
  if (x->format != BS_FORMAT_TABLE || !json_is_true(json_object_get(row, "chosen"))) return BS_OK;
  if (json_array_size(knobs) == 0) return BS_OK;
  printf("\n");
  return bs_report_print(stdout, x->format, knob_fields, sizeof knob_fields / sizeof knob_fields[0], knobs,
                         err);
}

int32_t explain_op(const explained *x, const char *name, bs_error *err) {
  question q = {0};
  const char *ops[BS_WORDS_MAX];
  size_t i;
  if (bs_op_schema_find(name) == NULL)
    return bsrun_unknown("op", name, ops, bs_word_list(BS_NAMES_OP, NULL, 0, ops), err);
  json_t *rows = json_array(), *row;
  bs_kernel_query kernel;
  const bs_kept *kept = NULL;
  const int shaped = explain_takes_shape(name) && explain_shape(x) != NULL;
  const bs_op_query *query = shaped ? &kernel.query : &q.asked.query;
  int32_t rc = !shaped ? ask(x, name, &q, err) : explain_kernel_ask(x, name, &kernel, &kept, err);
  if (rc == BS_OK) {
    rc = ladder(x, query, rows, err);
    if (rc == BS_INVALID_ARGUMENT) rc = err->code = BS_USAGE; /* the options made the query */
    add_unasked(rows, x->context, name, x->e.backend);
    json_array_foreach(rows, i, row) json_object_set_new(row, "op", json_string(name));
    if (rc == BS_OK) put_in_use(x, query, json_array_get(rows, 0));
    if (json_array_size(rows) > 0) {
      const int32_t printed = bs_report_print(stdout, x->format, fields, sizeof fields / sizeof fields[0],
                                              rows, rc == BS_OK ? err : NULL);
      if (rc == BS_OK) rc = printed;
      if (rc == BS_OK) rc = print_knobs(x, rows, err);
    }
  }
  bs_partition_free(q.partition);
  if (q.kept != NULL) bs_kept_free(q.kept);
  if (kept != NULL) bs_kept_free(kept);
  json_decref(rows);
  return rc;
}

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

static const char *const ops[] = {"matmul", "gather_columns", "scatter_columns", "convert", "activate"};

static const bs_field fields[] = {
    {"mark", "", 0, 0},
    {"implementation", "IMPLEMENTATION", 0, 0},
    {"plugin", "PLUGIN", 0, 0},
    {"level", "LEVEL", 0, 0},
    {"score", "SCORE", BS_FIELD_RIGHT, 0},
    {"priority", "PRIORITY", BS_FIELD_RIGHT, 0},
    {"reason", "REASON", 0, 0},
    {"text", "WHY / HOW", 0, 0},
    {"reason_code", "CODE", BS_FIELD_WIDE, 0},
    {"chosen", "CHOSEN", BS_FIELD_WIDE, 0},
    {"algorithm", "ALGORITHM", BS_FIELD_WIDE, 0},
    {"workspace_bytes", "WORKSPACE", BS_FIELD_WIDE, 0},
    {"op", "OP", BS_FIELD_WIDE, 0},
    {"summary", "WHAT", BS_FIELD_WIDE, 0},
};

/* A query and what it points to. */
typedef struct question {
  bs_tensor_desc x, bias, residual, y;
  const bs_tensor_desc *args[4];
  const bs_partition *partition;
  bs_op_query query;
} question;

static bs_tensor_desc matrix(uint32_t dtype, int64_t rows, int64_t cols) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = dtype, .rank = 2};
  d.dims[0] = d.strides[0] = rows;
  d.dims[1] = cols;
  d.strides[0] = cols;
  d.strides[1] = 1;
  return d;
}

static int32_t read_dtype(const args *a, const char *option, uint32_t fallback, uint32_t *out,
                          bs_error *err) {
  const char *text = args_value(a, option);
  *out = text == NULL ? fallback : bs_dtype_parse(text);
  if (*out != 0) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-USE-DTYPE", "--%s: '%.60s' is not a dtype", option, text);
  bs_error_hint(err, "one of f32, bf16, f16, f64, f8e4m3, f8e5m2");
  return BS_USAGE;
}

static int32_t read_activation(const args *a, uint32_t fallback, uint32_t *out, bs_error *err) {
  static const char *const names[] = {"none", "relu", "gelu", "silu"};
  const char *text = args_value(a, "activation");
  *out = fallback;
  if (text == NULL) return BS_OK;
  for (uint32_t i = 0; i < 4; i++) {
    *out = i;
    if (strcmp(text, names[i]) == 0) return BS_OK;
  }
  return bsrun_unknown("activation", text, names, 4, err);
}

static int32_t read_partition(const explained *x, int64_t K, question *q, bs_error *err) {
  int64_t rank;
  const uint32_t world = x->e.world_size != 0 ? x->e.world_size : 2;
  int32_t rc = args_integer(x->a, "rank", 0, 65535, 0, &rank, err);
  if (rc != BS_OK || !args_has(x->a, "mask")) return rc;
  if (rank >= (int64_t)world) {
    bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--rank %lld: the world has %u ranks", (long long)rank,
                 world);
    bs_error_hint(err, "ranks count from 0");
    return BS_USAGE;
  }
  return bs_partition_make(&x->e.mask, K, (uint32_t)rank, world, &q->partition, err);
}

static void fill_matmul(const explained *x, question *q, int64_t K, int64_t own, uint32_t out_dtype) {
  const bs_experiment *e = &x->e;
  const int full = q->partition != NULL && !args_has(x->a, "gathered");
  q->x = matrix(e->dtype, e->B, full ? K : own);
  q->bias = (bs_tensor_desc){.struct_size = sizeof q->bias, .dtype = e->dtype, .rank = 1};
  q->bias.dims[0] = e->N;
  q->bias.strides[0] = 1;
  q->residual = matrix(out_dtype, e->B, e->N);
  q->y = matrix(out_dtype, e->B, e->N);
  q->args[0] = &q->x;
  q->args[1] = args_has(x->a, "bias") ? &q->bias : NULL;
  q->args[2] = args_has(x->a, "residual") ? &q->residual : NULL;
  q->args[3] = &q->y;
  q->query.nargs = 4;
  q->query.flags |= full ? BS_QUERY_X_FULL : 0u;
  q->query.accumulate = e->accumulate;
}

static void fill_move(const explained *x, question *q, const char *op, int64_t K, int64_t own,
                      uint32_t out_dtype) {
  const bs_experiment *e = &x->e;
  const int convert = strcmp(op, "convert") == 0 || strcmp(op, "activate") == 0,
            gather = strcmp(op, "gather_columns") == 0;
  q->x = matrix(e->dtype, e->B, convert ? e->N : gather ? K : own);
  q->y = matrix(out_dtype, e->B, convert ? e->N : gather ? own : K);
  q->args[0] = &q->x;
  q->args[1] = &q->y;
  q->query.nargs = 2;
}

static int32_t ask(const explained *x, const char *op, question *q, bs_error *err) {
  const bs_experiment *e = &x->e;
  uint32_t out_dtype, weight_dtype;
  int64_t workspace;
  const int64_t K = e->K > 0 ? e->K : e->N;
  int32_t rc = read_dtype(x->a, "out-dtype", e->dtype, &out_dtype, err);
  if (rc == BS_OK) rc = read_dtype(x->a, "weight-dtype", e->dtype, &weight_dtype, err);
  if (rc == BS_OK) rc = args_integer(x->a, "workspace", 0, INT64_MAX, 0, &workspace, err);
  if (rc == BS_OK) rc = read_activation(x->a, e->activation, &q->query.activation, err);
  if (rc == BS_OK) rc = read_partition(x, K, q, err);
  if (rc != BS_OK) return rc;
  const int64_t own = q->partition != NULL ? q->partition->count : K;
  q->query.struct_size = sizeof q->query;
  q->query.op = op;
  q->query.args = q->args;
  q->query.workspace_limit = (uint64_t)workspace;
  q->query.partition = q->partition;
  if (args_has(x->a, "deterministic")) q->query.flags |= BS_QUERY_DETERMINISTIC;
  if (strcmp(op, "matmul") == 0) {
    q->query.weight_dtype = weight_dtype;
    fill_matmul(x, q, K, own, out_dtype);
    return BS_OK;
  }
  fill_move(x, q, op, K, own, out_dtype);
  if (strcmp(op, "convert") == 0 || strcmp(op, "activate") == 0) {
    q->query.partition = NULL;
  } else if (q->partition == NULL) {
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "%s needs --mask: the columns that it moves", op);
    bs_error_hint(err, "for example --mask complement_1100_0011 -P 2");
    return BS_USAGE;
  }
  return BS_OK;
}

static json_t *text_of(const char *text) {
  json_t *value = json_string(text == NULL ? "" : text);
  return value != NULL ? value : json_string("(not UTF-8)");
}

static void on_candidate(void *user, const bs_op_candidate *c) {
  const bs_op_answer *answer = c->answer;
  json_t *row = json_object();
  json_object_set_new(row, "mark", json_string(c->chosen ? "*" : ""));
  json_object_set_new(row, "implementation", text_of(c->name));
  json_object_set_new(row, "plugin", text_of(c->plugin));
  json_object_set_new(row, "level", json_string(bs_level_name(answer->level)));
  json_object_set_new(row, "score", json_integer(answer->score));
  json_object_set_new(row, "priority", json_integer(c->priority));
  json_object_set_new(row, "reason",
                      json_string(answer->level == BS_LEVEL_NO ? bs_reason_name(answer->reason) : ""));
  json_object_set_new(row, "text", text_of(answer->text));
  json_object_set_new(row, "reason_code", json_integer(answer->reason));
  json_object_set_new(row, "chosen", json_boolean(c->chosen));
  json_object_set_new(row, "algorithm", text_of(answer->algo));
  json_object_set_new(row, "workspace_bytes", json_integer((json_int_t)answer->workspace));
  json_object_set_new(row, "summary", text_of(c->summary));
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
    json_object_set_new(row, "implementation", text_of(wanted));
    json_object_set_new(row, "plugin", text_of(info.id));
    json_object_set_new(row, "level",
                        json_string(info.state == BS_PLUGIN_REFUSED ? "refused" : "unavailable"));
    json_object_set_new(row, "text", text_of(info.why));
    json_object_set_new(row, "chosen", json_false());
    json_array_append_new(rows, row);
  }
}

int32_t explain_op(const explained *x, const char *name, bs_error *err) {
  question q = {0};
  size_t i = 0;
  while (i < sizeof ops / sizeof ops[0] && strcmp(ops[i], name) != 0) i++;
  if (i == sizeof ops / sizeof ops[0]) return bsrun_unknown("op", name, ops, sizeof ops / sizeof ops[0], err);
  json_t *rows = json_array(), *row;
  int32_t rc = ask(x, name, &q, err);
  if (rc == BS_OK) {
    rc = bs_op_explain(x->context, x->e.backend, &q.query, on_candidate, rows, err);
    if (rc == BS_INVALID_ARGUMENT) rc = err->code = BS_USAGE; /* the options made the query */
    add_unasked(rows, x->context, name, x->e.backend);
    json_array_foreach(rows, i, row) json_object_set_new(row, "op", json_string(name));
    if (json_array_size(rows) > 0) {
      const int32_t printed = bs_report_print(stdout, x->format, fields, sizeof fields / sizeof fields[0],
                                              rows, rc == BS_OK ? err : NULL);
      if (rc == BS_OK) rc = printed;
    }
  }
  bs_partition_free(q.partition);
  json_decref(rows);
  return rc;
}

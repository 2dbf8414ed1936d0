/* SPDX-License-Identifier: MIT
 * replay_map.c - the data of a map's log. A tile is computed by the op of `ref` that the whole map is
 * computed by: a map keeps the order of what it adds, so all bits must be equal. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "lab/error.h"
#include "lab/sim/replay_parts.h"

enum { ARGS = 6, WEIGHT = ARGS };

/* How an op of `ref` computes a map: its args, in the order of the program's operands. */
static const struct map_op {
  const char *name, *op; /* op NULL: a copy */
  uint8_t nargs, in[4], out[3];
  uint8_t further, width; /* an arg that is thrown away (scales) or has numbers of its own (hyper), f32 */
  uint8_t positive;       /* an input that is not negative; 0: none */
  int64_t attr;
  double number;
  float hyper[8];
} map_ops[] = {
    {"map", "map", 2, {0}, {1}, 0, 0, 0, 0, 0, {0}},
    {"copy", NULL, 0, {0}, {0}, 0, 0, 0, 0, 0, {0}},
    {"convert", "convert", 2, {0}, {1}, 0, 0, 0, 0, 0, {0}},
    {"activate", "activate", 2, {0}, {1}, 0, 0, 0, 0, 0, {0}},
    {"normalize", "normalize", 6, {0}, {4}, 0, 0, 0, BS_NORMALIZE_LAYER, 1e-5, {0}},
    {"softmax", "normalize", 6, {0}, {4}, 0, 0, 0, BS_NORMALIZE_SOFTMAX, 0, {0}},
    {"reduce", "reduce", 2, {0}, {1}, 0, 0, 0, BS_FOLD_SUM, 1, {0}},
    /* Groups of one column: no tile cuts a group. */
    {"quantize_groups", "quantize_groups", 3, {0}, {1}, 2, 0, 0, 1, 0, {0}},
    {"sgd_update", "sgd_update", 3, {0, WEIGHT}, {WEIGHT}, 2, 4, 0, 0, 0, {0.125f}},
    {"adamw_update",
     "adamw_update",
     4,
     {0, 1, 2, WEIGHT},
     {1, 2, WEIGHT},
     3,
     8,
     2,
     0,
     0,
     {0.125f, 0.875f, 0.75f, 0.0625f, 0.01f, 1.5f, 2.0f, 0}},
};

typedef struct map_run {
  const bs_oplog_plan *plan;
  const struct map_op *op;
  bs_rank *rank;
  const sim_oplog *log;
  uint64_t seed;
  bs_oplog_replayed *out;
} map_run;

/* ---- one call of the op ------------------------------------------------------------------------- */

typedef struct call {
  bs_tensor tensors[ARGS], *args[ARGS];
  const bs_tensor_desc *descs[ARGS];
  bs_tensor_desc desc[ARGS];
} call;

static void set_arg(call *c, uint32_t arg, uint32_t dtype, uint64_t rows, uint64_t columns, char *data) {
  bs_tensor *t = &c->tensors[arg];
  *t = (bs_tensor){.struct_size = sizeof *t, .dtype = dtype, .rank = rows > 0 ? 2 : 1, .data = data};
  const uint32_t last = t->rank - 1;
  t->dims[0] = (int64_t)rows;
  t->dims[last] = (int64_t)columns;
  t->strides[0] = (int64_t)columns;
  t->strides[last] = 1;
  t->bytes = (rows > 0 ? rows : 1) * columns * BS_DTYPE_BYTES(dtype);
  c->desc[arg] = (bs_tensor_desc){.struct_size = sizeof c->desc[arg], .dtype = dtype, .rank = t->rank};
  memcpy(c->desc[arg].dims, t->dims, sizeof t->dims);
  c->descs[arg] = &c->desc[arg];
  c->args[arg] = t;
}

/* Room for scales that are thrown away, or the numbers of a step; the caller frees. */
static float *further_of(const map_run *m, uint64_t n) {
  float *further = calloc(n > 0 ? n : 1, sizeof *further);
  if (further != NULL && m->op->width > 0) memcpy(further, m->op->hyper, n * sizeof *further);
  return further;
}

static void set_further(const map_run *m, uint64_t rows, uint64_t columns, float *further, call *c) {
  const struct map_op *op = m->op;
  if (op->further > 0)
    set_arg(c, op->further, BS_F32, op->width > 0 ? 0 : rows, op->width > 0 ? op->width : columns,
            (char *)further);
}

/* The weight [1, n] of an optimiser's step. */
static int32_t pack(const map_run *m, uint64_t n, const char *values, bs_packed **out, bs_error *err) {
  bs_tensor_desc x = {.struct_size = sizeof x, .dtype = m->plan->dtype, .rank = 2, .dims = {1, (int64_t)n}},
                 y = x;
  const bs_tensor_desc *args[] = {&x, NULL, NULL, &y};
  const bs_op_query q = {.struct_size = sizeof q,
                         .op = "matmul",
                         .nargs = 4,
                         .args = args,
                         .flags = BS_QUERY_TRAIN,
                         .weight_dtype = m->plan->dtype};
  bs_source source;
  y.dims[1] = 1;
  int32_t rc = bs_source_from_memory(values, m->plan->dtype, 1, (int64_t)n, (int64_t)n, &source, err);
  if (rc != BS_OK) return rc;
  rc = bs_rank_get_api()->pack(m->rank, &q, &source, out, err);
  bs_source_release(&source);
  return rc;
}

static int32_t run_plan(const map_run *m, call *c, bs_packed *packed, bs_error *err) {
  static const bs_expr_step negate = {.op = BS_EXPR_NEG};
  static const uint8_t outs[] = {1};
  const bs_rank_api *api = bs_rank_get_api();
  const bs_expr expr = {.struct_size = sizeof expr,
                        .compute = m->plan->dtype == BS_F64 ? BS_F64 : BS_F32,
                        .n_in = 1,
                        .n_steps = 1,
                        .n_out = 1,
                        .max_op = BS_EXPR_NEG,
                        .steps = &negate,
                        .outs = outs};
  const bs_op_query q = {.struct_size = sizeof q,
                         .op = m->op->op,
                         .nargs = m->op->nargs,
                         .args = c->descs,
                         .activation = strcmp(m->op->op, "activate") == 0 ? BS_ACT_RELU : BS_ACT_NONE,
                         .weight_dtype = packed != NULL ? m->plan->dtype : 0,
                         .attrs = {m->op->attr},
                         .numbers = {m->op->number},
                         .expr = strcmp(m->op->op, "map") == 0 ? &expr : NULL};
  bs_plan *plan = NULL;
  bs_error why = BS_ERROR_INIT;
  int32_t rc = api->op_prepare(m->rank, &q, packed, &plan, &why);
  if (rc != BS_OK) rc = bs_error_set(err, BS_UNSUPPORTED, "BS-REPLAY-DATA", "no data: %.300s", why.message);
  if (rc == BS_OK) rc = api->op_run(plan, c->args, m->op->nargs, NULL, err);
  if (plan != NULL) api->op_release(plan);
  return rc;
}

/* dtype of what leaves: a converted one is f32, and what is quantised is i8. */
static uint32_t out_dtype(const map_run *m) {
  const uint32_t bytes = m->plan->what.map.out_bytes;
  if (bytes == m->plan->what.map.in_bytes) return m->plan->dtype;
  return bytes == 1 ? BS_I8 : BS_F32;
}

/* Operands of n elements, one behind the other, into outputs that lie so too. */
static int32_t run_op(const map_run *m, uint64_t n, const char *in, char *out, bs_error *err) {
  const sim_map_shape *s = &m->plan->what.map;
  const struct map_op *op = m->op;
  const uint64_t columns = s->row > 1 ? s->row : n, rows = n / columns, one_in = n * s->in_bytes,
                 out_columns = columns / (s->out_of > 0 ? s->out_of : 1),
                 one_out = rows * out_columns * s->out_bytes;
  bs_packed *packed = NULL;
  call c = {.args = {NULL}};
  float *further = NULL;
  int32_t rc = BS_OK;
  if (op->op == NULL) {
    memcpy(out, in, s->inputs * one_in);
    return BS_OK;
  }
  for (uint32_t i = 0; rc == BS_OK && i < s->inputs; i++) {
    char *data = (char *)(uintptr_t)in + i * one_in;
    if (op->in[i] == WEIGHT)
      rc = pack(m, n, data, &packed, err);
    else
      set_arg(&c, op->in[i], m->plan->dtype, rows, columns, data);
  }
  for (uint32_t o = 0; rc == BS_OK && o < s->outputs; o++) {
    if (op->out[o] == WEIGHT) continue;
    /* What is also an input is changed in its place: in a copy. */
    if (c.tensors[op->out[o]].data != NULL) memcpy(out + o * one_out, c.tensors[op->out[o]].data, one_out);
    set_arg(&c, op->out[o], out_dtype(m), rows, out_columns, out + o * one_out);
  }
  if (rc == BS_OK && (further = further_of(m, op->width > 0 ? op->width : n)) == NULL)
    rc = bs_no_memory(err, "a map");
  if (rc == BS_OK) set_further(m, rows, columns, further, &c);
  if (rc == BS_OK) rc = run_plan(m, &c, packed, err);
  for (uint32_t o = 0; rc == BS_OK && o < s->outputs; o++) {
    if (op->out[o] != WEIGHT) continue;
    set_arg(&c, 0, m->plan->dtype, 1, n, out + o * one_out);
    rc = bs_rank_get_api()->packed_read(packed, 0, &c.tensors[0], err);
  }
  if (packed != NULL) bs_rank_get_api()->packed_release(packed);
  free(further);
  return rc;
}

/* ---- the log ------------------------------------------------------------------------------------ */

static int32_t tile(bs_replaying *r, uint64_t at, char *out) {
  const map_run *m = r->user;
  const sim_map_shape *s = &m->plan->what.map;
  const sim_logged *j = &r->log->jobs[at];
  const uint64_t row = s->row > 1 ? s->row : 1, each = (uint64_t)s->inputs * s->in_bytes,
                 n = bs_range_bytes(&j->reads[0]) / each,
                 of = n / (s->out_of > 0 ? s->out_of : 1) * s->outputs * s->out_bytes;
  if (n == 0 || n % row != 0 || n * each != bs_range_bytes(&j->reads[0]) || bs_range_bytes(&j->writes) != of)
    return bs_replay_bad_job(r, at, "its sizes are those of no tile of this map");
  r->products += n;
  if (r->products > 2 * BS_OPLOG_PRODUCTS)
    return bs_replay_bad_job(r, at, "the log has more work than its op");
  char *in = malloc(n * each); /* the place in the scratch may have any alignment */
  if (in == NULL) return bs_no_memory(r->err, "a tile");
  memcpy(in, bs_replay_bytes(r, j, &j->reads[0]), n * each);
  const int32_t rc = run_op(m, n, in, out, r->err);
  free(in);
  return rc;
}

static int32_t compute(bs_replaying *r, uint64_t at, char *out) {
  const uint32_t what = r->log->jobs[at].what;
  if (what == SIM_LOAD || what == SIM_STORE) return bs_replay_copied(r, at, out);
  return what == SIM_MAP ? tile(r, at, out) : bs_replay_bad_job(r, at, "no map has such a job");
}

/* ---- numbers ------------------------------------------------------------------------------------ */

/* Of one input: normal numbers, or whole ones from -3 to 3. */
static int32_t draw(const map_run *m, uint32_t index, int whole, char *out, bs_error *err) {
  const uint64_t n = m->plan->what.map.elements;
  float *values = malloc(n * sizeof *values);
  if (values == NULL) return bs_no_memory(err, "the numbers of a replay");
  if (whole)
    bs_rng_uniform(m->seed, 17 + index, 0, n, values);
  else
    bs_rng_normal(m->seed, 17 + index, 0, n, values);
  for (uint64_t i = 0; i < n; i++) {
    if (whole) values[i] = floorf(7 * values[i]) - 3;
    if (index > 0 && index == m->op->positive) values[i] = fabsf(values[i]);
  }
  int32_t rc = bs_convert(m->plan->dtype, out, BS_F32, values, n);
  if (rc != BS_OK) rc = bs_error_set(err, BS_UNSUPPORTED, "BS-REPLAY-DATA", "no data of this dtype");
  free(values);
  return rc;
}

/* Outputs with other bits in the log than in one run. */
static int32_t compare(map_run *m, int whole, uint64_t *out_differing, bs_error *err) {
  const sim_map_shape *s = &m->plan->what.map;
  const uint64_t in = s->elements * s->in_bytes,
                 values = s->elements / (s->out_of > 0 ? s->out_of : 1) * s->outputs,
                 one_out = values / s->outputs * s->out_bytes;
  bs_replaying r = {.log = m->log, .plan = m->plan, .compute = compute, .user = m, .err = err};
  int32_t rc = bs_replay_check_size((double)s->elements, s->inputs * in + 2 * s->outputs * one_out, err);
  if (rc != BS_OK) return rc;
  char *inputs = malloc(s->inputs * in), *outputs = malloc(2 * s->outputs * one_out);
  if (inputs == NULL || outputs == NULL) rc = bs_no_memory(err, "the operands of a replay");
  for (uint32_t i = 0; rc == BS_OK && i < s->inputs; i++) {
    r.space[SIM_SPACE_INPUTS + i] = inputs + i * in;
    r.bytes[SIM_SPACE_INPUTS + i] = in;
    rc = draw(m, i, whole, inputs + i * in, err);
  }
  for (uint32_t o = 0; rc == BS_OK && o < s->outputs; o++) {
    r.space[SIM_SPACE_OUTPUTS + o] = outputs + o * one_out;
    r.bytes[SIM_SPACE_OUTPUTS + o] = one_out;
    memset(outputs + o * one_out, 0xff, one_out);
  }
  if (rc == BS_OK) rc = bs_replay_log(&r);
  char *right = outputs != NULL ? outputs + s->outputs * one_out : NULL;
  if (rc == BS_OK) rc = run_op(m, s->elements, inputs, right, err);
  *out_differing = 0;
  for (uint64_t i = 0; rc == BS_OK && i < values; i++)
    *out_differing += memcmp(outputs + i * s->out_bytes, right + i * s->out_bytes, s->out_bytes) != 0;
  free(inputs);
  free(outputs);
  return rc;
}

static int32_t on_rank(bs_rank *rank, void *user, bs_error *err) {
  map_run *m = user;
  m->rank = rank;
  const int32_t rc = compare(m, 0, &m->out->untiled, err);
  return rc == BS_OK ? compare(m, 1, &m->out->ref, err) : rc;
}

int32_t bs_oplog_replay_map(bs_context *context, const sim_oplog *log, const bs_oplog_plan *plan,
                            uint64_t seed, bs_oplog_replayed *out, bs_error *err) {
  const sim_map_shape *s = &plan->what.map;
  const size_t length = strcspn(log->op, " ");
  const bs_world_options o = {.struct_size = sizeof o,
                              .world_size = 1,
                              .backend = "ref",
                              .comm = "threads",
                              .threads_per_rank = 1,
                              .sync_mode = BS_SYNC_NONE};
  map_run m = {.plan = plan, .log = log, .seed = seed, .out = out};
  bs_world *world = NULL;
  *out = (bs_oplog_replayed){.values = s->elements / (s->out_of > 0 ? s->out_of : 1) * s->outputs,
                             .checks = BS_REPLAYED_UNTILED | BS_REPLAYED_REF};
  for (size_t i = 0; i < sizeof map_ops / sizeof map_ops[0]; i++)
    if (strlen(map_ops[i].name) == length && strncmp(map_ops[i].name, log->op, length) == 0)
      m.op = &map_ops[i];
  if (m.op == NULL) return bs_error_set(err, BS_UNSUPPORTED, "BS-REPLAY-DATA", "no data of %.60s", log->op);
  int32_t rc = bs_world_create(context, &o, &world, err);
  if (rc == BS_OK) rc = bs_world_run(world, on_rank, &m, err);
  bs_world_destroy(world);
  return rc;
}

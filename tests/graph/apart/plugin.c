/* SPDX-License-Identifier: MIT
 * plugin.c - see apart.h: the ops of ref, each of which opens the memory of its device while it works. */
#include "tests/graph/apart/apart.h"

typedef struct apart_op {
  bs_op_impl table;
  const bs_op_impl *inner;
  apart_state *state;
} apart_op;

/* A packed weight, or a plan. */
typedef struct apart_object {
  const apart_op *op;
  void *inner;
  const bs_exec *exec; /* of a plan */
} apart_object;

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  const apart_op *op = state;
  char word[64];
  snprintf(word, sizeof word, ",%s,", op->inner->op);
  if (strstr(op->state->lacks, word) == NULL) return op->inner->supports(&op->state->ref, query, out_answer);
  out_answer->level = BS_LEVEL_NO;
  out_answer->reason = BS_REASON_DISABLED;
  snprintf(out_answer->text, sizeof out_answer->text, "apart.lacks has it");
  return BS_OK;
}

static apart_object *object_new(const apart_op *op, bs_error *err) {
  const bs_host *host = op->state->ref.host;
  apart_object *o = host->alloc(host->ctx, sizeof *o, 64);
  if (o == NULL) {
    bs_fail(err, BS_NO_MEMORY, "BS-APART-MEMORY", "no memory for an object");
    return NULL;
  }
  *o = (apart_object){.op = op};
  return o;
}

static void object_free(apart_object *o) {
  const bs_host *host = o->op->state->ref.host;
  host->free(host->ctx, o);
}

static int32_t pack(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                    void **out_packed, uint64_t *out_bytes, bs_error *err) {
  const apart_op *op = state;
  apart_object *o = object_new(op, err);
  if (o == NULL) return BS_NO_MEMORY;
  apart_open(op->state);
  const int32_t rc = op->inner->pack(&op->state->ref, exec, query, weights, &o->inner, out_bytes, err);
  apart_close(op->state);
  if (rc == BS_OK)
    *out_packed = o;
  else
    object_free(o);
  return rc;
}

static void packed_free(void *packed) {
  apart_object *o = packed;
  o->op->inner->packed_free(o->inner);
  object_free(o);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const apart_op *op = state;
  apart_object *o = object_new(op, err);
  if (o == NULL) return BS_NO_MEMORY;
  void *inner = packed != NULL ? ((apart_object *)packed)->inner : NULL;
  apart_open(op->state);
  const int32_t rc = op->inner->prepare(&op->state->ref, exec, query, inner, &o->inner, err);
  apart_close(op->state);
  o->exec = exec;
  if (rc == BS_OK)
    *out_plan = o;
  else
    object_free(o);
  return rc;
}

static int32_t run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const apart_object *o = plan;
  apart_device *device = o->exec->device;
  if (device->captures != NULL)
    return apart_capture(device, o->op->inner, o->exec, o->inner, args, nargs, err);
  apart_open(o->op->state);
  const int32_t rc = o->op->inner->run(o->inner, args, nargs, stream, err);
  apart_close(o->op->state);
  return rc;
}

static void plan_free(void *plan) {
  apart_object *o = plan;
  o->op->inner->plan_free(o->inner);
  object_free(o);
}

static const struct {
  const bs_op_impl *inner;
  const bs_src_loc *at;
} served[] = {
    {&ref_matmul, &ref_matmul_at},       {&ref_map, &ref_map_at},
    {&ref_normalize, &ref_normalize_at}, {&ref_attention, &ref_attention_at},
    {&ref_contract, &ref_contract_at},   {&ref_reduce, &ref_reduce_at},
    {&ref_take, &ref_take_at},           {&ref_put, &ref_put_at},
    {&ref_take_q, &ref_take_q_at},       {&ref_matmul_q, &ref_matmul_q_at},
    {&ref_topk, &ref_topk_at},           {&ref_gather_columns, &ref_gather_columns_at},
    {&ref_convert, &ref_convert_at},     {&ref_activate, &ref_activate_at},
};
enum { SERVED = sizeof served / sizeof served[0] };

typedef struct apart_plugin {
  apart_state state;
  apart_op ops[SERVED];
} apart_plugin;

static int32_t read_params(apart_state *s, bs_error *err) {
  static const bs_param_desc params[] = {
      {sizeof(bs_param_desc), BS_PARAM_STRING, "lacks", "", NULL, NULL,
       "ops that it does not serve: topk,take"},
      {sizeof(bs_param_desc), BS_PARAM_INT, "room", "1073741824", "0..4294967296", "B", "memory of a device"},
      {sizeof(bs_param_desc), BS_PARAM_INT, "fails", "0", "0..1000000", NULL,
       "the copy that fails, from 1; 0: none"},
      {sizeof(bs_param_desc), BS_PARAM_BOOL, "keeps", "true", NULL, NULL, "captures; false: it refuses them"},
  };
  const bs_host *host = s->ref.host;
  bs_value value = {.struct_size = (uint32_t)sizeof value};
  for (size_t i = 0; i < sizeof params / sizeof params[0]; i++) {
    const int32_t rc = host->param_define(host->ctx, s->self, &params[i], err);
    if (rc != BS_OK) return rc;
  }
  int32_t rc = host->param_get(host->ctx, s->self, "lacks", &value, err);
  if (rc != BS_OK) return rc;
  snprintf(s->lacks, sizeof s->lacks, ",%s,", value.s);
  rc = host->param_get(host->ctx, s->self, "room", &value, err);
  if (rc != BS_OK) return rc;
  s->room = (uint64_t)value.i;
  rc = host->param_get(host->ctx, s->self, "fails", &value, err);
  if (rc != BS_OK) return rc;
  s->fails = (uint64_t)value.i;
  rc = host->param_get(host->ctx, s->self, "keeps", &value, err);
  s->keeps = value.i != 0;
  return rc;
}

static int32_t register_all(apart_plugin *p, bs_error *err) {
  apart_state *s = &p->state;
  const bs_host *host = s->ref.host;
  bs_backend backend = apart_backend;
  apart_capture_slots(&backend);
  int32_t rc = read_params(s, err);
  if (rc == BS_OK)
    rc = host->register_thing(host->ctx, s->self, BS_KIND_BACKEND, &backend, s, &apart_backend_at, err);
  for (size_t i = 0; i < SERVED && rc == BS_OK; i++) {
    const bs_op_impl *inner = served[i].inner;
    p->ops[i] = (apart_op){.inner = inner, .state = s};
    p->ops[i].table = (bs_op_impl){.struct_size = (uint32_t)sizeof(bs_op_impl),
                                   .op = inner->op,
                                   .backend = "apart",
                                   .name = inner->name,
                                   .summary = inner->summary,
                                   .supports = supports,
                                   .pack = inner->pack != NULL ? pack : NULL,
                                   .packed_free = inner->packed_free != NULL ? packed_free : NULL,
                                   .prepare = prepare,
                                   .run = run,
                                   .plan_free = plan_free};
    rc =
        host->register_thing(host->ctx, s->self, BS_KIND_OP, &p->ops[i].table, &p->ops[i], served[i].at, err);
  }
  return rc;
}

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  apart_plugin *p = host->alloc(host->ctx, sizeof *p, 64);
  if (p == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-APART-MEMORY", "no memory for the plugin");
  p->state = (apart_state){.ref = {.host = host}, .self = self};
  int32_t rc = apart_reserve(&p->state, err);
  if (rc == BS_OK) {
    rc = register_all(p, err);
    if (rc != BS_OK) apart_release(&p->state);
  }
  if (rc != BS_OK) host->free(host->ctx, p);
  if (rc == BS_OK) *out_state = p;
  return rc;
}

static int32_t deactivate(void *opaque, bs_error *err) {
  (void)err;
  apart_plugin *p = opaque;
  apart_release(&p->state);
  p->state.ref.host->free(p->state.ref.host->ctx, p);
  return BS_OK;
}

BS_PLUGIN_DEFINE("apart", "0.1.0", "ref behind memory that the host cannot reach",
                 1u << BS_KIND_BACKEND | 1u << BS_KIND_OP,
                 "backend:apart\nop:matmul@apart\nop:map@apart\nop:normalize@apart\nop:attention@apart\n"
                 "op:contract@apart\nop:reduce@apart\nop:take@apart\nop:put@apart\nop:topk@apart\n"
                 "op:take_q@apart\nop:matmul_q@apart\n"
                 "op:gather_columns@apart\nop:convert@apart\nop:activate@apart\n",
                 activate, deactivate)

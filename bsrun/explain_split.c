/* SPDX-License-Identifier: MIT
 * explain_split.c - `bsrun explain method M`: what each rank would do and exchange, with the time that the
 * machine's stored constants predict; and the part of that which explain_mask.c shares. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/explain_split.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/cores.h"
#include "lab/gate/mixed.h"
#include "lab/gate/verdict.h"
#include "lab/measure/chunks.h"
#include "lab/measure/constants.h"

int32_t split_open(split *s, const explained *x, bs_error *err) {
  memset(s, 0, sizeof *s);
  s->x = x;
  s->e = x->e;
  s->constants = bsrun_constants(x->cache, args_has(x->a, "quiet"));
  s->e.machine_constants = s->constants;
  s->e.only_stored = 1;
  const int32_t rc = bs_subject_open(x->context, &s->e, &s->subject, err);
  if (rc != BS_OK) {
    json_decref(s->constants);
    return rc;
  }
  bs_overlap_resolve(&s->e, &s->subject);
  s->threads = x->e.threads_per_rank;
  if (s->threads == 0 && s->subject.world_size > 0) s->threads = bs_machine_cores() / s->subject.world_size;
  if (s->threads == 0) s->threads = 1;
  s->rows = json_array();
  return BS_OK;
}

void split_close(split *s) {
  json_decref(s->rows);
  json_decref(s->constants);
  bs_subject_close(&s->subject);
}

int32_t split_print(const split *s, const bs_field *fields, size_t n, bs_error *err) {
  const int32_t rc = bs_report_print(stdout, s->x->format, fields, n, s->rows, err);
  const int quiet = args_has(s->x->a, "quiet");
  if (rc == BS_OK && s->constants == NULL)
    bsrun_note(quiet, "no predicted times: bsrun doctor --measure keeps this machine's constants");
  if (rc == BS_OK && s->constants != NULL && s->lacking)
    bsrun_note(quiet, "no predicted times: the stored constants lack this dtype, backend or number of ranks");
  if (rc == BS_OK && s->no_kernel.code != BS_OK) {
    char text[512];
    snprintf(text, sizeof text, "no times predicted for the kernel, only bounds: %.400s",
             s->no_kernel.message);
    bsrun_note(quiet, text);
  }
  return rc;
}

static bs_case case_of(const split *s) {
  return (bs_case){.context = s->x->context,
                   .method = s->x->e.method,
                   .backend = s->x->e.backend,
                   .comm = s->x->e.comm,
                   .world_size = s->subject.world_size,
                   .threads_per_rank = s->threads,
                   .timeout_s = s->x->e.timeout_s,
                   .choices = s->x->e.choices,
                   .n_choices = s->x->e.n_choices,
                   .spec = s->subject.spec,
                   .x = &s->subject.x,
                   .w = &s->subject.w,
                   .bias = s->subject.info.has_bias ? &s->subject.bias : NULL};
}

/* The stored rates of the implementation that would serve; NULL and no_kernel where there are none. */
static const bs_kernel *kernel_of(split *s, const bs_case *c, double footprint, uint32_t kind,
                                  bs_kernel *out) {
  if (s->kernel.name[0] == '\0' && s->no_kernel.code == BS_OK)
    bs_kernel_identify(c, &s->kernel, &s->no_kernel);
  if (s->kernel.name[0] == '\0') return NULL;
  if (kind != SPLIT_OWN_PRODUCT && s->kernel.of24 != (kind == SPLIT_PRODUCT_24)) return NULL;
  if (bs_constants_kernel(s->constants, c, footprint, &s->kernel, out)) return out;
  bs_error_set(&s->no_kernel, BS_NOT_FOUND, "BS-KERNEL-STORED",
               "the stored constants have no rates of %s (%s)", s->kernel.name, s->kernel.how);
  return NULL;
}

void split_predict(split *s, json_t *row, const bs_proposal *proposal, uint32_t kind) {
  bs_machine machine;
  bs_predicted p;
  const bs_case like = case_of(s);
  bs_kernel kernel;
  const double footprint = (double)proposal->weight_bytes * s->subject.world_size;
  if (s->constants == NULL || !bs_constants_find(s->constants, &like, footprint, &machine)) {
    s->lacking = 1;
    return;
  }
  const bs_kernel *measured =
      kind == SPLIT_BOUND_ALONE ? NULL : kernel_of(s, &like, footprint, kind, &kernel);
  bs_predict_rank(&machine, measured, &s->subject.spec, proposal, s->subject.world_size, s->threads, &p);
  if (p.has_kernel) json_object_set_new(row, "predicted_ms", json_real(1e3 * p.kernel.total));
  json_object_set_new(row, "bound_ms", json_real(1e3 * p.bound.total));
  json_object_set_new(row, "wire_s", json_real(p.bound.wire));
  json_object_set_new(row, "limit", json_string(p.limit));
}

int32_t split_propose(const split *s, uint32_t rank, bs_proposal *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->struct_size = sizeof *out;
  return bs_method_propose(s->x->context, s->x->e.method, &s->subject.spec, rank, s->subject.world_size, out,
                           err);
}

static const bs_field method_fields[] = {
    {"rank", "RANK", BS_FIELD_RIGHT, 0},
    {"split", "SPLIT", 0, 0},
    {"flops", "FLOPS", BS_FIELD_RIGHT, 0},
    {"weight_bytes", "WEIGHT BYTES", BS_FIELD_RIGHT, 0},
    {"workspace_bytes", "WORKSPACE BYTES", BS_FIELD_RIGHT, 0},
    {"collectives", "COLLECTIVES", 0, 0},
    {"payload_bytes", "PAYLOAD BYTES", BS_FIELD_RIGHT, 0},
    {"predicted_ms", "PREDICTED ms", BS_FIELD_RIGHT, 4},
    {"bound_ms", "BOUND ms", BS_FIELD_RIGHT, 4},
    {"limit", "LIMIT", 0, 0},
    {"mixed_error", "MIXED ERROR", BS_FIELD_RIGHT, 3},
    {"repro", "REPRO", 0, 0},
    {"text", "HOW", 0, 0},
    {"method", "METHOD", BS_FIELD_WIDE, 0},
    {"world_size", "P", BS_FIELD_WIDE, 0},
    {"x_placement", "X", BS_FIELD_WIDE, 0},
    {"y_placement", "Y", BS_FIELD_WIDE, 0},
    {"dtype", "DTYPE", BS_FIELD_WIDE, 0},
    {"reduce_dtype", "REDUCE DTYPE", BS_FIELD_WIDE, 0},
    {"wire_bytes", "WIRE BYTES", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"wire_error", "WIRE ERROR", BS_FIELD_WIDE | BS_FIELD_RIGHT, 3},
    {"wire_s", "WIRE s", BS_FIELD_WIDE | BS_FIELD_RIGHT, 4},
    {"chunks", "CHUNKS", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"B", "B", BS_FIELD_WIDE, 0},
    {"N", "N", BS_FIELD_WIDE, 0},
    {"K", "K", BS_FIELD_WIDE, 0},
};

static const char *pick(const char *const *names, size_t n, uint32_t i) {
  return i < n ? names[i] : "?";
}

static int32_t method_row(split *s, uint32_t rank, const bs_mixed_error *mixed, bs_error *err) {
  static const char *const splits[] = {"none", "K", "N"};
  static const char *const placements[] = {"replicated", "split", "partial", "tokens"};
  static const char *const classes[] = {"R0", "R1", "R2", "R3", "R4"};
  bs_proposal p;
  bs_text collectives = {0};
  const bs_layer_spec *spec = &s->subject.spec;
  uint64_t payload = 0;
  const int32_t rc = split_propose(s, rank, &p, err);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; i < p.n_collectives && i < BS_MAX_PROPOSED; i++) {
    bs_text_printf(&collectives, "%s%s", i > 0 ? " " : "", bs_name_of(BS_NAMES_COLL, p.coll_kind[i]));
    payload += p.coll_payload[i];
  }
  p.text[sizeof p.text - 1] = '\0';
  json_t *row =
      json_pack("{s:i,s:s,s:I,s:I,s:I,s:s,s:I,s:s,s:i,s:s,s:s,s:s,s:I,s:I,s:I}", "rank", (int)rank, "split",
                pick(splits, 3, p.split), "flops", (json_int_t)p.flops, "weight_bytes",
                (json_int_t)p.weight_bytes, "workspace_bytes", (json_int_t)p.workspace_bytes, "collectives",
                collectives.data != NULL ? collectives.data : "none", "payload_bytes", (json_int_t)payload,
                "method", s->x->e.method, "world_size", (int)s->subject.world_size, "x_placement",
                pick(placements, 4, p.x_placement), "y_placement", pick(placements, 4, p.y_placement),
                "dtype", bs_dtype_name(spec->w_dtype), "B", (json_int_t)spec->B, "N", (json_int_t)spec->N,
                "K", (json_int_t)spec->K);
  bs_text_free(&collectives);
  if (row == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  json_t *text = json_string(p.text);
  json_object_set_new(row, "reduce_dtype", json_string(bs_dtype_name(bs_arithmetic_of(spec).reduce_dtype)));
  json_object_set_new(row, "wire_bytes", json_integer((json_int_t)bs_wire_bytes(&p, s->subject.world_size)));
  json_object_set_new(row, "wire_error", json_real(p.wire_error));
  if (mixed->asked) json_object_set_new(row, "mixed_error", json_real(mixed->expected[BS_MIXED_WHOLE]));
  json_object_set_new(row, "chunks", json_integer(p.chunks > 1 ? (json_int_t)p.chunks : 1));
  json_object_set_new(row, "text", text != NULL ? text : json_string("(not UTF-8)"));
  json_object_set_new(row, "repro", json_string(pick(classes, 5, p.repro)));
  split_predict(s, row, &p, SPLIT_OWN_PRODUCT);
  json_array_append_new(s->rows, row);
  return BS_OK;
}

int32_t explain_method(const explained *x, bs_error *err) {
  split s;
  int32_t rc = split_open(&s, x, err);
  if (rc != BS_OK) return rc;
  bs_mixed_error mixed = {0};
  const bs_case like = case_of(&s);
  rc = bs_mixed_expect(&like, &mixed, err);
  for (uint32_t r = 0; rc == BS_OK && r < s.subject.world_size; r++) rc = method_row(&s, r, &mixed, err);
  if (rc == BS_OK) rc = split_print(&s, method_fields, sizeof method_fields / sizeof method_fields[0], err);
  split_close(&s);
  return rc;
}

/* SPDX-License-Identifier: MIT
 * explain_mask.c - `bsrun explain mask MASK`: what the mask compiler decides, what each rank keeps, and what
 * the other ways to multiply would take. */
#include <stdio.h>
#include <string.h>

#include "bsrun/explain_split.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/partition/compile.h"
#include "core/partition/kept.h"
#include "core/partition/partition.h"

static const bs_field fields[] = {
    {"mark", "", 0, 0},
    {"rank", "RANK", BS_FIELD_RIGHT, 0},
    {"runs_as", "RUNS AS", 0, 0},
    {"columns", "COLUMNS", BS_FIELD_RIGHT, 0},
    {"which", "WHICH", 0, 0},
    {"weight_bytes", "WEIGHT BYTES", BS_FIELD_RIGHT, 0},
    {"of_dense", "OF DENSE W", BS_FIELD_RIGHT, 4},
    {"predicted_ms", "PREDICTED ms", BS_FIELD_RIGHT, 4},
    {"bound_ms", "BOUND ms", BS_FIELD_RIGHT, 4},
    {"limit", "LIMIT", 0, 0},
    {"legal", "HARDWARE FORMATS", BS_FIELD_FOLD, 0},
    {"why", "WHY", 0, 0},
    {"chosen", "CHOSEN", BS_FIELD_WIDE, 0},
    {"form", "FORM", BS_FIELD_WIDE, 0},
    {"mask", "MASK", BS_FIELD_WIDE, 0},
    {"world_size", "P", BS_FIELD_WIDE, 0},
    {"dtype", "DTYPE", BS_FIELD_WIDE, 0},
    {"N", "N", BS_FIELD_WIDE, 0},
    {"K", "K", BS_FIELD_WIDE, 0},
};

/* The part of the answer that is the same in every row. */
typedef struct answer {
  split s;
  const bs_mask *mask; /* with its order */
  bs_compiled compiled;
  int halves;                /* the mask has two that keep two of each four */
  int by_row;                /* and they differ by row */
  uint32_t pairs;            /* of ranks that share a slice */
  explained_weights weights; /* that are asked for */
  char legal[96];
  char no_op24[512];   /* why the backend has none; "" */
  char no_matmul[512]; /* why it has no dense product of the dtype; "" */
} answer;

/* One way to multiply, on one rank. */
typedef struct way {
  uint32_t rank, form;
  int64_t rows, columns; /* that are multiplied; rows 0: it is no way */
  uint64_t bytes;
  const char *runs_as, *which, *why;
} way;

/* Bytes of weights. fp4 is kept in pairs: two bits a group tell which, four where single ones are. */
static uint64_t bytes_of(const answer *a, uint32_t form, int64_t rows, int64_t cols, int64_t kept) {
  if (a->weights.dtype != 0) return bs_form_bytes(form, a->weights.dtype, rows, cols, kept);
  const uint64_t groups = (uint64_t)rows * (uint64_t)(cols / 4 + (cols % 4 != 0));
  const uint64_t values = (uint64_t)rows * (uint64_t)bs_form_columns(form, cols, kept);
  return (values * a->weights.bits + (form == BS_FORM_SPARSE24 ? 2 * groups : 0) + 7) / 8;
}

/* Why this way, or that the backend has no such product. */
static const char *why_of(const answer *a, const way *w) {
  return w->form != BS_FORM_SPARSE24 && w->rows > 0 && a->no_matmul[0] != '\0' ? a->no_matmul : w->why;
}

static uint32_t product_of(const answer *a, uint32_t form) {
  if (a->s.x->weights.name != NULL) return SPLIT_BOUND_ALONE;
  return form == BS_FORM_SPARSE24 ? SPLIT_PRODUCT_24 : SPLIT_DENSE_PRODUCT;
}

static int32_t note_row(answer *a, const way *w, const bs_proposal *proposal, bs_error *err) {
  const bs_layer_spec *spec = &a->s.subject.spec;
  const int chosen = w->form == a->compiled.form;
  const double dense = (double)bytes_of(a, BS_FORM_DENSE, spec->N, spec->K, spec->K);
  json_t *row =
      json_pack("{s:s,s:i,s:s,s:s,s:s,s:s,s:i,s:s,s:s,s:i,s:s,s:I,s:I}", "mark", chosen ? "*" : "", "rank",
                (int)w->rank, "runs_as", w->runs_as, "which", w->which, "legal", a->legal, "why",
                why_of(a, w), "chosen", chosen, "form", bs_form_name(w->form), "mask",
                a->mask->name != NULL ? a->mask->name : "?", "world_size", (int)a->s.subject.world_size,
                "dtype", a->weights.name, "N", (json_int_t)spec->N, "K", (json_int_t)spec->K);
  if (row == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (w->rows > 0) {
    json_object_set_new(row, "columns", json_integer((json_int_t)w->columns));
    json_object_set_new(row, "weight_bytes", json_integer((json_int_t)w->bytes));
    if (dense > 0) json_object_set_new(row, "of_dense", json_real((double)w->bytes / dense));
  }
  if (w->rows > 0 && proposal != NULL) {
    bs_proposal p = *proposal;
    p.weight_bytes = w->bytes;
    p.flops = 2 * (uint64_t)spec->B * (uint64_t)w->rows * (uint64_t)w->columns;
    split_predict(&a->s, row, &p, product_of(a, w->form));
  }
  json_array_append_new(a->s.rows, row);
  return BS_OK;
}

/* ---- ranks that own whole columns ----------------------------------------------------------------- */

/* "0..2047" or "0,1,4,5,8,9,..,62". */
static void columns_text(const bs_partition *p, char *out, size_t size) {
  size_t used = 0;
  if (p->count == 0) {
    snprintf(out, size, "none");
  } else if (p->kind == BS_PARTITION_CONTIGUOUS) {
    snprintf(out, size, "%lld..%lld", (long long)p->begin, (long long)(p->begin + p->count - 1));
  } else {
    for (int64_t i = 0; i < p->count && i < 6 && used < size; i++) {
      const int n = snprintf(out + used, size - used, "%s%u", i > 0 ? "," : "", p->columns[i]);
      if (n > 0) used += (size_t)n;
    }
    if (p->count > 6 && used < size) snprintf(out + used, size - used, ",..,%u", p->columns[p->count - 1]);
  }
}

static int32_t columns_row(answer *a, uint32_t rank, bs_error *err) {
  const bs_layer_spec *spec = &a->s.subject.spec;
  const bs_partition *p = NULL;
  bs_proposal proposal;
  char which[128], runs_as[64] = "run of columns";
  int32_t rc = bs_partition_make(a->mask, spec->K, rank, a->s.subject.world_size, &p, err);
  if (rc == BS_OK) rc = split_propose(&a->s, rank, &proposal, err);
  if (rc == BS_OK) {
    columns_text(p, which, sizeof which);
    if (a->s.subject.world_size == 1) {
      snprintf(runs_as, sizeof runs_as, "dense");
    } else if (p->kind == BS_PARTITION_GATHER && p->period != 0) {
      snprintf(runs_as, sizeof runs_as, "gather, period %u", p->period);
    } else if (p->kind == BS_PARTITION_GATHER) {
      snprintf(runs_as, sizeof runs_as, "gather by list");
    }
    const way w = {.rank = rank,
                   .form = a->compiled.form,
                   .rows = spec->N,
                   .columns = p->count,
                   .bytes = a->s.x->weights.name == NULL
                                ? proposal.weight_bytes
                                : bytes_of(a, a->compiled.form, spec->N, spec->K, p->count),
                   .runs_as = runs_as,
                   .which = which,
                   .why = a->compiled.why};
    rc = note_row(a, &w, &proposal, err);
  }
  bs_partition_free(p);
  return rc;
}

/* ---- ranks that own halves ------------------------------------------------------------------------ */

/* The first groups of the first two rows: "1100 0110 .. | 0101 0011 ..". */
static int32_t half_text(const answer *a, uint32_t half, char *out, size_t size, bs_error *err) {
  const bs_layer_spec *spec = &a->s.subject.spec;
  const bs_kept *kept = NULL;
  uint8_t bytes[2][3] = {{0}};
  const int64_t groups = spec->K < 12 ? (spec->K + 3) / 4 : 3, rows = spec->N < 2 ? spec->N : 2;
  int32_t rc = bs_kept_make(a->mask, spec->N, spec->K, &a->s.subject.w, half, &kept, err);
  if (rc == BS_OK) rc = kept->read(kept->ctx, 0, rows, 0, groups, bytes[0], 3, err);
  size_t used = (size_t)snprintf(out, size, "half %u:", half);
  for (int64_t r = 0; rc == BS_OK && r < rows; r++) {
    used += (size_t)snprintf(out + used, size - used, "%s", r > 0 ? " |" : "");
    for (int64_t g = 0; g < groups; g++) {
      char digits[5] = "";
      for (int j = 0; j < 4; j++) digits[j] = (bytes[r][g] >> j & 1) ? '1' : '0';
      used += (size_t)snprintf(out + used, size - used, " %s", digits);
    }
    if (4 * groups < spec->K) used += (size_t)snprintf(out + used, size - used, " ..");
  }
  bs_kept_free(kept);
  return rc;
}

/* Zeros are stored by masked_split: all rows and columns on every rank. */
static int propose_half(const answer *a, uint32_t rank, uint32_t form, bs_proposal *out) {
  const bs_subject *subject = &a->s.subject;
  bs_error none = BS_ERROR_INIT;
  if (form != BS_FORM_DENSE || subject->world_size == 1)
    return split_propose(&a->s, rank, out, &none) == BS_OK;
  memset(out, 0, sizeof *out);
  out->struct_size = (uint32_t)sizeof *out;
  return bs_method_propose(a->s.x->context, "masked_split", &subject->spec, rank, subject->world_size, out,
                           &none) == BS_OK;
}

/* The rank's half of its slice; where the method would run it, the slice is as the method says. */
static int32_t half_row(answer *a, uint32_t rank, uint32_t form, const char *why, bs_error *err) {
  const bs_layer_spec *spec = &a->s.subject.spec;
  const uint32_t world = a->s.subject.world_size, slice = rank / 2;
  char which[128];
  bs_proposal proposal;
  int32_t rc = BS_OK;
  const int known = propose_half(a, rank, form, &proposal);
  int64_t begin, rows = spec->N, other = 0;
  if (world > 2 && form != BS_FORM_DENSE) { /* a pair has the shares of both its ranks */
    bs_share(spec->N, 2 * slice, world, &begin, &rows);
    bs_share(spec->N, 2 * slice + 1, world, &begin, &other);
    rows += other;
  }
  if (world == 1)
    snprintf(which, sizeof which, "both halves");
  else if (world > 2)
    snprintf(which, sizeof which, "half %u of slice %u of %u", rank % 2, slice, a->pairs);
  else
    rc = half_text(a, rank, which, sizeof which, err);
  if (rc != BS_OK) return rc;
  const way w = {.rank = rank,
                 .form = form,
                 .rows = rows,
                 .columns = bs_form_columns(form, spec->K, (spec->K + 1) / 2),
                 .bytes = bytes_of(a, form, rows, spec->K, (spec->K + 1) / 2),
                 .runs_as = bs_form_name(form),
                 .which = which,
                 .why = why};
  return note_row(a, &w, known ? &proposal : NULL, err);
}

/* ---- the other ways, for rank 0 -------------------------------------------------------------------- */

static int32_t no_way(answer *a, uint32_t form, const char *why, bs_error *err) {
  const way w = {.form = form, .runs_as = bs_form_name(form), .which = "", .why = why};
  return note_row(a, &w, NULL, err);
}

static int32_t other_24(answer *a, bs_error *err) {
  if (!a->halves) return no_way(a, BS_FORM_SPARSE24, "the mask does not keep two of each four columns", err);
  return half_row(a, 0, BS_FORM_SPARSE24,
                  a->no_op24[0] != '\0' ? a->no_op24 : "values with positions (kernel=sparse24)", err);
}

/* masked_split has the whole matrix on every rank. */
static int32_t other_dense(answer *a, bs_error *err) {
  const bs_layer_spec *spec = &a->s.subject.spec;
  bs_proposal proposal;
  bs_error none = BS_ERROR_INIT;
  if (a->by_row)
    return half_row(a, 0, BS_FORM_DENSE, "the zeros are stored and multiplied too (masked_split)", err);
  const int known = split_propose(&a->s, 0, &proposal, &none) == BS_OK;
  const way w = {.form = BS_FORM_DENSE,
                 .rows = spec->N,
                 .columns = spec->K,
                 .bytes = bytes_of(a, BS_FORM_DENSE, spec->N, spec->K, spec->K),
                 .runs_as = "dense",
                 .which = "zeros in the others' columns",
                 .why = "the zeros are stored and multiplied too (masked_split)"};
  return note_row(a, &w, known ? &proposal : NULL, err);
}

static int32_t other_ways(answer *a, bs_error *err) {
  const uint32_t form = a->compiled.form;
  int32_t rc = BS_OK;
  if (a->s.subject.world_size == 1) return BS_OK;
  if (form != BS_FORM_GATHER && form != BS_FORM_RUN)
    rc = no_way(a, BS_FORM_GATHER, "rows keep different columns: no choice of X's columns serves them all",
                err);
  if (rc == BS_OK && form != BS_FORM_SPARSE24) rc = other_24(a, err);
  if (rc == BS_OK && form != BS_FORM_DENSE) rc = other_dense(a, err);
  return rc;
}

/* ---- the answer -------------------------------------------------------------------------------------- */

static void ignore(void *user, const bs_op_candidate *candidate) {
  (void)user, (void)candidate;
}

/* Has the backend this product of the weights? Why not goes into `out`. Bytes are multiplied by bytes. */
static void ask_op(answer *a, const char *op, const bs_kept *kept, char *out, size_t size) {
  const bs_layer_spec *spec = &a->s.subject.spec;
  const int bytes = a->weights.dtype == BS_I8;
  bs_error why = BS_ERROR_INIT;
  if (a->weights.dtype == 0) {
    snprintf(out, size, "not on this backend: no backend has weights of %s", a->weights.name);
    return;
  }
  const bs_tensor_desc x = {.struct_size = sizeof x,
                            .dtype = bytes ? BS_I8 : spec->x_dtype,
                            .rank = 2,
                            .dims = {spec->B, spec->K},
                            .strides = {spec->K, 1}};
  const bs_tensor_desc y = {.struct_size = sizeof y,
                            .dtype = bytes ? BS_I32 : spec->y_dtype,
                            .rank = 2,
                            .dims = {spec->B, spec->N},
                            .strides = {spec->N, 1}};
  const bs_tensor_desc *of[4] = {&x, NULL, NULL, &y};
  const bs_op_query query = {.struct_size = sizeof query,
                             .nargs = 4,
                             .op = op,
                             .args = of,
                             .flags = BS_QUERY_DETERMINISTIC,
                             .weight_dtype = a->weights.dtype,
                             .accumulate = spec->accumulate,
                             .kept = kept};
  if (bs_op_explain(a->s.x->context, a->s.x->e.backend, &query, ignore, NULL, &why) != BS_OK)
    snprintf(out, size, "not on this backend: %.480s", why.message);
}

/* The 2:4 weights are those of rank 0. */
static void ask_ops(answer *a) {
  const bs_layer_spec *spec = &a->s.subject.spec;
  const bs_kept *kept = NULL;
  bs_error why = BS_ERROR_INIT;
  ask_op(a, "matmul", NULL, a->no_matmul, sizeof a->no_matmul);
  if (!a->halves) return;
  if (bs_kept_make(a->mask, spec->N, spec->K, &a->s.subject.w, 0, &kept, &why) == BS_OK)
    ask_op(a, "matmul24", kept, a->no_op24, sizeof a->no_op24);
  else
    snprintf(a->no_op24, sizeof a->no_op24, "%.500s", why.message);
  bs_kept_free(kept);
}

static void legal_text(answer *a) {
  size_t used = 0;
  if (!a->halves) {
    snprintf(a->legal, sizeof a->legal, "no 2:4");
    return;
  }
  for (uint32_t f = 0; f < BS_SPARSE_COUNT_; f++)
    if (a->compiled.facts.legal >> f & 1u)
      used += (size_t)snprintf(a->legal + used, sizeof a->legal - used, "%s%s", used > 0 ? ", " : "",
                               bs_sparse_format_name(f));
}

static int32_t compile(answer *a, bs_error *err) {
  const bs_subject *subject = &a->s.subject;
  a->mask = &subject->mask;
  a->by_row = bs_mask_by_row(a->mask);
  a->halves = a->by_row || a->mask->kind == BS_MASK_COMPLEMENT;
  a->pairs = subject->world_size / 2;
  a->weights = a->s.x->weights;
  if (a->weights.name == NULL) {
    a->weights.dtype = subject->spec.w_dtype;
    a->weights.name = bs_dtype_name(a->weights.dtype);
  }
  if (a->by_row && subject->world_size > 1 && subject->world_size % 2 != 0) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-MASK-WORLD",
                 "mask %s has two halves and cannot be split over an odd number of ranks (P = %u)",
                 a->mask->name, subject->world_size);
    bs_error_hint(err, "use the mask interleave, which takes any P, or an even P");
    return BS_UNSUPPORTED;
  }
  ask_ops(a);
  const int32_t rc =
      bs_mask_compile(a->mask, subject->spec.N, subject->spec.K, &subject->w, subject->world_size,
                      a->no_op24[0] != '\0' ? a->no_op24 : NULL, &a->compiled, err);
  legal_text(a);
  return rc;
}

int32_t explain_mask(const explained *x, bs_error *err) {
  answer a;
  memset(&a, 0, sizeof a);
  int32_t rc = split_open(&a.s, x, err);
  if (rc != BS_OK) return rc;
  rc = compile(&a, err);
  for (uint32_t r = 0; rc == BS_OK && r < a.s.subject.world_size; r++)
    rc = a.by_row ? half_row(&a, r, a.compiled.form, a.compiled.why, err) : columns_row(&a, r, err);
  if (rc == BS_OK) rc = other_ways(&a, err);
  if (rc == BS_OK) rc = split_print(&a.s, fields, sizeof fields / sizeof fields[0], err);
  split_close(&a.s);
  return rc;
}

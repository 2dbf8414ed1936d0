/* SPDX-License-Identifier: MIT
 *
 * tp_repro.c - the promises on the bits of y: the option `repro`, the promise of a layer by default, and
 * promises that are impossible. R0 and R1 always hold (deterministic plans, a communicator that reduces in
 * rank order); R2 is requested from the kernel (BS_QUERY_TOKENWISE); R3 and R4 sum K in leaves
 * (tp_leaf_shape.c). docs/numbers.md explains them. Pure. */
#include "tp_kept.h"

const tp_option tp_common_options[] = {
    {"repro", "R0,R1,R2,R3,R4", "R1", "how far the bits of Y are promised"},
    {"mixed", NULL, NULL, NULL},
    {"mixed_dtype", "i8,f8e4m3,f8e5m2", "i8", "with mixed: the dtype of the other columns"},
    {"mixed_scales", "row,tensor,block", "row", "with mixed and fp8: what shares a scale"}};
const uint32_t tp_common_count = (uint32_t)(sizeof tp_common_options / sizeof tp_common_options[0]);

uint32_t tp_repro_asked(const bs_layer_spec *spec) {
  return (uint32_t)(tp_option_get(spec, "repro", "R1")[1] - '0');
}

uint32_t tp_repro_promised(const bs_layer_spec *spec, const tp_shape *shape) {
  if (spec->y_placement == BS_PARTIAL && shape->world > 1) return BS_REPRO_R0;
  return shape->repro > BS_REPRO_R1 ? shape->repro : (uint32_t)BS_REPRO_R1;
}

static int32_t refuse(const tp_traits *traits, uint32_t repro, const char *why, const char *hint,
                      bs_error *err) {
  bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-REPRO", "method %s: repro=R%u %s", traits->name, repro, why);
  return bs_fail_hint(err, "%s", hint), BS_UNSUPPORTED;
}

static int is_natural(const bs_layer_spec *spec) {
  const uint32_t wide =
      spec->y_dtype == BS_F64 || !tp_is_float(spec->y_dtype) ? spec->y_dtype : (uint32_t)BS_F32;
  return spec->reduce_dtype == 0 || spec->reduce_dtype == wide;
}

/* R3 and R4: leaves of K that are the same for 1, 2, 4 and 8 ranks. */
static int32_t check_leaves(const tp_traits *traits, const bs_layer_spec *spec, uint32_t repro,
                            uint32_t split, uint32_t world, bs_error *err) {
  const int power = world == 1 || world == 2 || world == 4 || world == TP_LEAVES;
  if (traits->full_width &&
      (repro == BS_REPRO_R4 || (spec->mask != NULL && tp_mask_by_row(spec->mask->kind))))
    return refuse(traits, repro, "is not kept: it multiplies the zeros of other columns too",
                  repro == BS_REPRO_R4 ? "blockshock keeps it with a mask for columns, and masked_split R3"
                                       : "a mask that keeps the same columns in every row has leaves",
                  err);
  if (spec->flags != 0 && repro == BS_REPRO_R4)
    return refuse(traits, repro, "is promised of the forward pass alone", "train with repro=R3 or below",
                  err);
  if (!is_natural(spec))
    return refuse(traits, repro, "sums in f32 (f64 and integers in their own dtype)",
                  "leave method.reduce_dtype out", err);
  const char *overlap = tp_option_get(spec, "overlap", "off");
  if (strcmp(overlap, "off") != 0 && strcmp(overlap, "auto") != 0)
    return refuse(traits, repro, "gathers the sums of leaves in one piece", "overlap=off", err);
  if ((split == BS_SPLIT_K || (split == BS_SPLIT_N && spec->flags != 0)) && !power)
    return refuse(traits, repro, "is promised for 1, 2, 4 and 8 ranks, each with its subtree of 8 leaves",
                  "column_parallel keeps it on any number, in the forward pass", err);
  if (split == BS_SPLIT_N && spec->flags != 0 && spec->y_placement == BS_SPLIT && world < TP_LEAVES &&
      spec->N % TP_LEAVES != 0)
    return refuse(traits, repro, "of a split y needs even shares of 8 leaves of its features to train",
                  "a multiple of 8 outputs, a replicated y, or repro=R2", err);
  return BS_OK;
}

int32_t tp_repro_check(const tp_traits *traits, const bs_layer_spec *spec, uint32_t split, uint32_t world,
                       bs_error *err) {
  const uint32_t repro = tp_repro_asked(spec);
  if (repro >= BS_REPRO_R2 && split != BS_SPLIT_NONE && spec->y_placement == BS_PARTIAL)
    return refuse(traits, repro, "cannot be promised of a partial sum, which is another on every rank",
                  "let the layer reduce y, or leave repro out", err);
  if (repro == BS_REPRO_R2 && spec->reduce_dtype == BS_I8 && tp_is_float(spec->y_dtype))
    return refuse(traits, repro, "is not kept by sums whose groups have a scale in common",
                  "method.reduce_dtype f32 or bf16 keeps it", err);
  if (repro < BS_REPRO_R3) return BS_OK;
  return check_leaves(traits, spec, repro, split, world, err);
}

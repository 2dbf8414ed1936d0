/* SPDX-License-Identifier: MIT
 * table.c - the operators that can be lowered: one table a family, searched by name, domain and opset. */
#include <stdlib.h>
#include <string.h>

#include "graph/lower/lower.h"

static const lower_rule *const families[] = {
    lower_rules_elementwise, lower_rules_compare, lower_rules_view,           lower_rules_join,
    lower_rules_reduce,      lower_rules_norm,    lower_rules_product,        lower_rules_conv,
    lower_rules_pool,        lower_rules_resize,  lower_rules_conv_transpose, lower_rules_contrib,
    lower_rules_attention,   lower_rules_index,   lower_rules_quant,          lower_rules_qlinear,
    lower_rules_control,     lower_rules_angle,   lower_rules_recurrent,      lower_rules_spectral,
    lower_rules_sample,      lower_rules_unpool,  lower_rules_sequence};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

const lower_rule *lower_find(const char *op, const char *domain, uint32_t opset, int *out_known) {
  *out_known = 0;
  if (strcmp(domain, "ai.onnx") == 0) domain = "";
  for (uint32_t f = 0; f < N_FAMILIES; f++)
    for (const lower_rule *r = families[f]; r->op != NULL; r++) {
      if (strcmp(r->op, op) != 0 || strcmp(r->domain != NULL ? r->domain : "", domain) != 0) continue;
      *out_known = 1;
      if (opset >= r->min_opset && (r->max_opset == 0 || opset <= r->max_opset)) return r;
    }
  return NULL;
}

/* The smallest name that is larger than the one before, so that no sorted copy is kept. */
const char *lower_op_name(uint32_t index) {
  const char *before = "";
  for (uint32_t i = 0; i <= index; i++) {
    const char *next = NULL;
    for (uint32_t f = 0; f < N_FAMILIES; f++)
      for (const lower_rule *r = families[f]; r->op != NULL; r++)
        if (strcmp(r->op, before) > 0 && (next == NULL || strcmp(r->op, next) < 0)) next = r->op;
    if (next == NULL) return NULL;
    before = next;
  }
  return before;
}

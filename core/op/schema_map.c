/* SPDX-License-Identifier: MIT
 * schema_map.c - the core op map: a small program for each element (blockshock/expr.h). Used by
 * schema_table.c. The program itself has been checked by bs_op_check (expr.c). */
#include "core/base/dtype.h"
#include "core/op/schema.h"

int32_t bs_op_check_map(const bs_op_query *q, bs_error *err) {
  const uint32_t n_in = q->expr->n_in;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < q->nargs; i++) rc = bs_op_check_dims(q, i, n_in, i < n_in, err);
  for (uint32_t i = 0; rc == BS_OK && i < n_in && q->expr->compute == BS_I64; i++)
    if (bs_dtype_is_float(q->args[i]->dtype))
      rc = bs_op_refuse(err, "BS-OP-DTYPE", q->op, "arg %u is %s, the program is i64: integers or bool", i,
                        bs_dtype_name(q->args[i]->dtype));
  return rc;
}

void bs_op_link_map(const bs_op_query *q, bs_op_links *links) {
  const uint8_t first_out = (uint8_t)q->expr->n_in;
  for (uint32_t i = 0; i < q->nargs; i++) {
    bs_op_link_all(q, links, i, first_out);
    links->touched[i] = 1;
  }
  links->nterms = 1;
  links->terms[0] = (bs_op_term){q->expr->n_steps, first_out, first_out, 0};
}

/* SPDX-License-Identifier: MIT
 * schema.h - what a node of an ONNX operator may have: inputs, outputs and attributes by the operator's
 * schema. gmodel_node_add asks it, so that files, folders and bs_graph_op are checked alike. Thread-safe. */
#ifndef BS_GRAPH_SCHEMA_H
#define BS_GRAPH_SCHEMA_H
#include "graph/model.h"

/* One version of an operator; it holds until the next version of the same operator.
 *   in, out  a letter for each place: 1 needed, ? optional, * any number, + one or more
 *   attrs    NAME:TYPE, each after a space. TYPE is a letter of schema_types; ! follows when the operator
 *            needs the attribute, then =A|B|C with the values that it may have. */
typedef struct schema_row {
  const char *op, *domain; /* domain "": ai.onnx */
  uint32_t since;
  const char *in, *out, *attrs;
} schema_row;
extern const schema_row schema_rows[];
extern const uint32_t schema_n_rows;

/* BS_INPUT (BS-GRAPH-BAD) names the node and what breaks the schema: an unknown attribute, one of another
 * type, one that is given twice or is absent, a value that the operator does not have, an input that is
 * absent, too many inputs or outputs. An operator without a row is not checked. */
int32_t schema_check(const gmodel *model, const gmodel_node_desc *desc, const uint32_t *out, bs_error *err);
#endif

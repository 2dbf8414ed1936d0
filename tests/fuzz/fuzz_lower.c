/* SPDX-License-Identifier: MIT
 * fuzz_lower.c - any bytes as an ONNX model on the way to kernel ops: an error that names itself, an issue,
 * or a graph. Constants are not computed: those that would be are zeros. The corpus is text, as
 * fuzz_import's. */
#include <string.h>

#include "core/base/error.h"
#include "core/op/schema.h"
#include "graph/import/import.h"
#include "graph/lower/lower.h"
#include "tests/fuzz/input.h"
#include "tests/graph/onnx_text.h"

/* The outputs have memory for their roots' elements, which is zero as it comes. */
static int32_t leave_zeros(void *user, const graph *g, const gnode *node, void *const *out_data,
                           bs_error *err) {
  (void)user;
  (void)g;
  (void)out_data;
  (void)err;
  return graph_is_packed(node->op) ? BS_UNSUPPORTED : BS_OK;
}

/* Of core/op/schema.c, whose table of ops the lowering does not need. */
int32_t bs_op_refuse(bs_error *err, const char *id, const char *op, const char *fmt, ...) {
  (void)fmt;
  return bs_error_set(err, BS_INVALID_ARGUMENT, id, "%s", op);
}

static void each_issue(void *user, const bs_graph_issue *issue) {
  (void)user;
  if (issue->reason[0] == '\0' || issue->op[0] == '\0') abort();
}

static void give(const uint8_t *data, size_t size) {
  gmodel *model = NULL;
  graph *g = NULL;
  bs_error err = BS_ERROR_INIT;
  const lower_options options = {.missing = 3, .folder = {.run = leave_zeros}, .issue = each_issue};
  if (import_onnx_bytes(data, size, &model, &err) == BS_OK && gmodel_check(model, &err) == BS_OK) {
    const int32_t rc = lower_model(model, &options, &g, &err);
    if (rc != BS_OK && (g != NULL || err.id[0] == '\0' || rc == BS_INTERNAL)) abort();
    graph_free(g);
  }
  gmodel_free(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  unsigned char *bytes = NULL;
  size_t made = 0;
  char why[160], *text = malloc(size + 1);
  if (text == NULL) abort();
  memcpy(text, data, size);
  text[size] = '\0';
  if (onnx_text(text, 0, &bytes, &made, why, sizeof why)) {
    give(bytes, made);
    free(bytes);
  }
  free(text);
  give(data, size);
  return 0;
}

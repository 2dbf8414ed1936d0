/* SPDX-License-Identifier: MIT
 * fuzz_gguf_model.c - any bytes as a GGUF file that holds a model: an error that names itself, or a whole
 * model whose constants lie inside of their memory. */
#include <string.h>

#include "core/base/error.h"
#include "graph/import/import.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  /* A cache of 64 tokens: that of a key may have gigabytes, as a user who asks for it may want. */
  const bs_graph_options options = {.struct_size = (uint32_t)sizeof options, .cache_tokens = 64};
  gmodel *model = NULL;
  bs_error err = BS_ERROR_INIT;
  if (import_gguf(fuzz_path(data, size), &options, &model, &err) != BS_OK) {
    if (strncmp(err.id, "BS-", 3) != 0 || err.message[0] == '\0') abort();
    return 0;
  }
  if (gmodel_check(model, &err) != BS_OK) abort();
  for (uint32_t i = 0; i < model->n_values; i++)
    if (model->values[i].kind == GMODEL_CONSTANT) fuzz_touch(model->values[i].data, model->values[i].bytes);
  gmodel_free(model);
  return 0;
}

/* SPDX-License-Identifier: MIT
 * fuzz_import.c - any bytes as an ONNX file on the way to a source model: an error that names itself, or a
 * model that gmodel_check judges. Bytes that are ONNX's text syntax are first made into a file; the corpus is
 * text. */
#include <string.h>

#include "core/base/error.h"
#include "graph/import/import.h"
#include "tests/fuzz/input.h"
#include "tests/graph/onnx_text.h"

static void give(const uint8_t *data, size_t size) {
  gmodel *m = NULL;
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = import_onnx_bytes(data, size, &m, &err);
  if (rc != BS_OK && (rc != BS_INPUT || m != NULL || err.id[0] == '\0' || err.where[0] == '\0')) abort();
  if (rc == BS_OK && gmodel_check(m, &err) != BS_OK && err.code != BS_INPUT) abort();
  gmodel_free(m);
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

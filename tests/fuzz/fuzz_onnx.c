/* SPDX-License-Identifier: MIT
 * fuzz_onnx.c - any bytes as an ONNX file: an error that names itself, or a model of which all can be read
 * and whose memory is bounded by the file's size. Bytes that are ONNX's text syntax are first made into a
 * file, so that the fuzzer gets past the wire format; its corpus is text. */
#include <string.h>

#include "core/base/error.h"
#include "tests/fuzz/input.h"
#include "tests/graph/onnx_text.h"
#include "tests/graph/onnx_walk.h"

static void give(const uint8_t *data, size_t size) {
  bs_onnx m;
  bs_error err = BS_ERROR_INIT;
  if (bs_onnx_open(fuzz_path(data, size), &m, &err) != BS_OK) {
    if (strncmp(err.id, "BS-ONNX-", 8) != 0 && strncmp(err.id, "BS-PB-", 6) != 0) abort();
    if (err.code != BS_INPUT || err.message[0] == '\0' || err.where[0] == '\0') abort();
    return;
  }
  onnx_walk(&m);
  bs_onnx_close(&m);
}

static void give_tensor(const uint8_t *data, size_t size) {
  bs_onnx_pb pb;
  bs_error err = BS_ERROR_INIT;
  if (bs_onnx_pb_open(fuzz_path(data, size), &pb, &err) != BS_OK) {
    if (err.code != BS_INPUT || err.message[0] == '\0') abort();
    return;
  }
  onnx_walk_tensor(&pb.tensor);
  bs_onnx_pb_close(&pb);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  unsigned char *bytes = NULL;
  size_t made = 0;
  char why[160], *text = malloc(size + 1);
  if (text == NULL) abort();
  memcpy(text, data, size);
  text[size] = '\0';
  for (uint32_t flags = 0; flags <= ONNX_TEXT_RAW; flags++) {
    if (!onnx_text(text, flags, &bytes, &made, why, sizeof why)) break;
    give(bytes, made);
    free(bytes);
  }
  const char *at = text;
  if (onnx_text_tensor(&at, 0, &bytes, &made, why, sizeof why)) {
    give_tensor(bytes, made);
    free(bytes);
  }
  free(text);
  give(data, size);
  give_tensor(data, size);
  return 0;
}

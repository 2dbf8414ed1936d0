/* SPDX-License-Identifier: MIT
 * fuzz_safetensors.c - any bytes as a safetensors file: an error that names itself, or tensors that cover the
 * data of the file exactly once. */
#include <string.h>

#include "core/base/error.h"
#include "formats/safetensors.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bs_st st;
  bs_error err = BS_ERROR_INIT;
  const bs_st_tensor *found = NULL;
  uint64_t bytes = 0;
  if (bs_st_open(fuzz_path(data, size), &st, &err) != BS_OK) {
    if (strncmp(err.id, "BS-ST-", 6) != 0 || err.message[0] == '\0') abort();
    return 0;
  }
  for (uint64_t i = 0; i < st.count; i++) {
    const bs_st_tensor *t = &st.tensors[i];
    int32_t rc = bs_st_find(&st, t->name, &found, &err);
    if (t->offset + t->bytes > size || t->rank > BS_ST_MAX_DIMS) abort();
    if (rc != (t->dtype == 0 ? BS_INPUT : BS_OK)) abort();
    fuzz_touch(t->data, t->bytes);
    bytes += t->bytes;
  }
  if (st.count > 0 && st.tensors[0].offset + bytes != size) abort();
  bs_st_close(&st);
  return 0;
}

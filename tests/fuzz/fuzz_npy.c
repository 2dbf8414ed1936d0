/* SPDX-License-Identifier: MIT
 * fuzz_npy.c - any bytes as a .npy file: an error that names itself, or an array that lies inside the file.
 */
#include <string.h>

#include "core/base/error.h"
#include "formats/npy.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bs_npy npy;
  bs_error err = BS_ERROR_INIT;
  if (bs_npy_open(fuzz_path(data, size), &npy, &err) != BS_OK) {
    if (strncmp(err.id, "BS-NPY-", 7) != 0 || err.message[0] == '\0') abort();
    return 0;
  }
  uint64_t bytes = npy.count * BS_DTYPE_BYTES(npy.dtype);
  if (npy.offset + bytes != size || npy.rank > BS_NPY_MAX_DIMS) abort();
  fuzz_touch(npy.data, bytes);
  bs_npy_close(&npy);
  return 0;
}

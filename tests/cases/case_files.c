/* SPDX-License-Identifier: MIT
 * case_files.c - see case_files.h. */
#include "case_files.h"

#include "blockshock/names.h"
#include "core/base/dtype.h"
#include "formats/npy.h"
#include "tests/graph/onnx_text.h"
#include "tests/spawn.h"

void write_onnx(const char *path, const char *text) {
  unsigned char *bytes;
  size_t size;
  char why[200] = "";
  ck_assert_msg(onnx_text(text, 0, &bytes, &size, why, sizeof why), "%s: %s", path, why);
  run_write("/", path, bytes, size);
  free(bytes);
}

/* The sizes of a shape, which is "": of one number. Returns how many numbers there are. */
static int64_t read_shape(const char *shape, int64_t out_dims[8], uint32_t *out_rank) {
  int64_t count = 1;
  char *end = (char *)(uintptr_t)shape;
  *out_rank = 0;
  while (*end != '\0' && *out_rank < 8) {
    out_dims[*out_rank] = strtol(end, &end, 10);
    count *= out_dims[(*out_rank)++];
    end += *end == ',';
  }
  return count;
}

void write_npy(const char *path, const char *dtype, const char *shape, char *const *values, int n) {
  uint32_t rank, kind = 0;
  int64_t dims[8];
  bs_error err = BS_ERROR_INIT;
  const int64_t count = read_shape(shape, dims, &rank);
  ck_assert_msg(bs_name_read(BS_NAMES_DTYPE, dtype, &kind) && (n > 0 || count == 0),
                "npy %s: dtype or values", path);
  int64_t *data = calloc((size_t)count + 1, sizeof *data);
  for (int64_t i = 0; i < count; i++) {
    if (kind == BS_I64)
      data[i] = strtoll(values[i % n], NULL, 10);
    else
      bs_store_f64(kind, data, i, strtod(values[i % n], NULL));
  }
  ck_assert_msg(bs_npy_write(path, kind, rank, dims, data, &err) == BS_OK, "%s", err.message);
  free(data);
}

void add_tensor(tensors *t, const char *name, const char *shape, char *const *values, int n) {
  uint32_t rank;
  int64_t dims[8];
  const int64_t count = read_shape(shape, dims, &rank);
  const int room = (int)sizeof t->header - t->length, end = t->count + (int)count;
  ck_assert_msg(n > 0 && end <= (int)(sizeof t->data / sizeof t->data[0]), "tensor %s", name);
  t->length += snprintf(t->header + t->length, (size_t)room,
                        "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%d,%d]}",
                        t->length == 0 ? '{' : ',', name, shape, 4 * t->count, 4 * end);
  ck_assert_int_lt(t->length, (int)sizeof t->header - 1);
  for (int i = 0; i < count; i++) t->data[t->count++] = strtof(values[i % n], NULL);
}

void write_safetensors(const char *path, const tensors *t) {
  static char file[8 + sizeof t->header + sizeof t->data];
  const uint64_t header = (uint64_t)t->length + 1;
  memcpy(file, &header, 8);
  memcpy(file + 8, t->header, (size_t)t->length);
  file[8 + t->length] = '}';
  memcpy(file + 8 + header, t->data, 4 * (size_t)t->count);
  run_write("/", path, file, 8 + header + 4 * (size_t)t->count);
}

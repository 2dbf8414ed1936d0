/* SPDX-License-Identifier: MIT
 * tensors.c - reading the files of a dump, and finding which tensor each one is by its name. */
#include "lab/check/tensors.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/dtype.h"
#include "core/base/size.h"
#include "formats/npy.h"
#include "formats/safetensors.h"
#include "lab/error.h"

/* One tensor's description in a file, before its values are copied. */
typedef struct found {
  const char *name;
  uint32_t dtype, rank;
  const int64_t *dims;
  const void *data;
} found;

/* Splits "partial_rank12" into "partial" and 12; "Y" into "y" and 0. Underscores, dots and "rank" are
 * ignored. */
static uint32_t split_name(const char *name, char *out_base, size_t size) {
  size_t n = strlen(name), length = 0;
  uint64_t index = 0;
  while (n > 0 && isdigit((unsigned char)name[n - 1])) n--;
  for (const char *p = name + n; *p != '\0' && index < BS_CHECK_RANKS; p++)
    index = index * 10 + (uint64_t)(*p - '0');
  for (size_t i = 0; i < n && length + 1 < size; i++) {
    if (name[i] != '_' && name[i] != '.' && name[i] != '-')
      out_base[length++] = (char)tolower((unsigned char)name[i]);
  }
  out_base[length] = '\0';
  if (length > 4 && strcmp(out_base + length - 4, "rank") == 0) out_base[length - 4] = '\0';
  return (uint32_t)index;
}

/* The list for a tensor name; NULL: unknown name. */
static bs_check_list *list_of(bs_check_set *set, const char *base) {
  const struct {
    const char *base;
    bs_check_list *list;
  } names[] = {{"x", &set->x},       {"input", &set->x},         {"w", &set->w},
               {"weight", &set->w},  {"b", &set->bias},          {"bias", &set->bias},
               {"y", &set->y},       {"output", &set->y},        {"partial", &set->partial},
               {"p", &set->partial}, {"columns", &set->columns}, {"cols", &set->columns}};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(names[i].base, base) == 0) return names[i].list;
  return NULL;
}

/* Copies a tensor. A rank may own nothing: its part of Y, its partial or its columns may be empty. */
static int32_t copy_tensor(const found *f, int may_be_empty, bs_check_tensor *out, bs_error *err) {
  uint64_t rows = 1, count, bytes;
  const int64_t cols = f->rank > 0 ? f->dims[f->rank - 1] : 1;
  for (uint32_t d = 0; d + 1 < f->rank; d++)
    if (f->dims[d] < 0 || !bs_mul_u64(rows, (uint64_t)f->dims[d], &rows)) rows = UINT64_MAX;
  if (rows > INT64_MAX || cols < 0 || !bs_mul_u64(rows, (uint64_t)cols, &count) || count > INT64_MAX / 16 ||
      !bs_mul_u64(count, BS_DTYPE_BYTES(f->dtype), &bytes))
    return bs_error_set(err, BS_INPUT, "BS-CHECK-SHAPE", "tensor %.100s is too large", f->name);
  if (count == 0 && !may_be_empty)
    return bs_error_set(err, BS_INPUT, "BS-CHECK-SHAPE", "tensor %.100s is empty", f->name);
  out->data = malloc((size_t)bytes + 1);
  if (out->data == NULL)
    return bs_no_memory(err, "tensor %.100s of %llu bytes", f->name, (unsigned long long)bytes);
  if (bytes > 0) memcpy(out->data, f->data, (size_t)bytes);
  out->rows = (int64_t)rows;
  out->cols = cols;
  out->dtype = f->dtype;
  return BS_OK;
}

/* Tensors of other names are passed over. */
static int32_t take(bs_check_set *set, const found *f, bs_error *err) {
  char base[64];
  const uint32_t index = split_name(f->name, base, sizeof base);
  bs_check_list *list = list_of(set, base);
  if (list == NULL) return BS_OK;
  const int alone = list == &set->x || list == &set->w || list == &set->bias;
  if (index >= (alone ? 1u : (uint32_t)BS_CHECK_RANKS))
    return bs_error_set(err, BS_INPUT, "BS-CHECK-NAME", "tensor %.100s: rank %u (0 to %d are judged)",
                        f->name, index, alone ? 0 : BS_CHECK_RANKS - 1);
  if (list->of[index].data != NULL)
    return bs_error_set(err, BS_INPUT, "BS-CHECK-NAME", "two tensors are %s of rank %u; %.100s is the second",
                        base, index, f->name);
  if (!bs_dtype_known(f->dtype))
    return bs_error_set(err, BS_INPUT, "BS-CHECK-DTYPE", "tensor %.100s has a dtype that is not judged",
                        f->name);
  if (index >= list->n) list->n = index + 1;
  return copy_tensor(f, !alone, &list->of[index], err);
}

static int32_t read_npy(bs_check_set *set, const char *path, bs_error *err) {
  char name[256];
  bs_npy npy = {0};
  const char *file = strrchr(path, '/');
  file = file == NULL ? path : file + 1;
  snprintf(name, sizeof name, "%.*s", (int)(strlen(file) - 4), file);
  int32_t rc = bs_npy_open(path, &npy, err);
  if (rc != BS_OK) return rc;
  const found f = {name, npy.dtype, npy.rank, npy.dims, npy.data};
  rc = take(set, &f, err);
  if (rc == BS_OK) rc = bs_map_unchanged(&npy.map, path, err);
  bs_npy_close(&npy);
  if (rc != BS_OK) bs_error_where(err, "%s", path);
  return rc;
}

static int32_t read_safetensors(bs_check_set *set, const char *path, bs_error *err) {
  bs_st st = {0};
  int32_t rc = bs_st_open(path, &st, err);
  if (rc != BS_OK) return rc;
  for (uint64_t i = 0; rc == BS_OK && i < st.count; i++) {
    const bs_st_tensor *t = &st.tensors[i];
    const found f = {t->name, t->dtype, t->rank, t->dims, t->data};
    rc = take(set, &f, err);
  }
  if (rc == BS_OK) rc = bs_map_unchanged(&st.map, path, err);
  bs_st_close(&st);
  if (rc != BS_OK) bs_error_where(err, "%s", path);
  return rc;
}

static int ends_with(const char *name, const char *end) {
  const size_t n = strlen(name), m = strlen(end);
  return n > m && strcmp(name + n - m, end) == 0;
}

static int32_t read_file(bs_check_set *set, const char *path, bs_error *err) {
  if (ends_with(path, ".npy")) return read_npy(set, path, err);
  return ends_with(path, ".safetensors") ? read_safetensors(set, path, err) : BS_OK;
}

static int32_t read_folder(bs_check_set *set, const char *path, bs_error *err) {
  char file[4096];
  int32_t rc = BS_OK;
  DIR *dir = opendir(path);
  if (dir == NULL) return bs_error_errno(err, BS_INPUT, "BS-CHECK-OPEN", errno, "cannot read %.200s", path);
  for (const struct dirent *e = readdir(dir); rc == BS_OK && e != NULL; e = readdir(dir)) {
    const int n = snprintf(file, sizeof file, "%s/%s", path, e->d_name);
    if (e->d_name[0] == '.' || n < 0) continue;
    rc = (size_t)n < sizeof file
             ? read_file(set, file, err)
             : bs_error_set(err, BS_INPUT, "BS-CHECK-OPEN", "a path of %d bytes is too long", n);
  }
  closedir(dir);
  return rc;
}

static int32_t check_whole(const bs_check_set *set, const char *path, bs_error *err) {
  const struct {
    const char *name;
    const bs_check_list *list;
    int needed;
  } all[] = {{"X", &set->x, 1},
             {"W", &set->w, 1},
             {"Y", &set->y, 1},
             {"partial", &set->partial, 0},
             {"columns", &set->columns, 0}};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    if (all[i].needed && all[i].list->n == 0) {
      bs_error_set(err, BS_INPUT, "BS-CHECK-MISSING", "%.200s has no tensor %s", path, all[i].name);
      bs_error_hint(err,
                    "names: X.npy W.npy b.npy Y.npy (or Y0.npy ..) partial_0.npy .., or these in a "
                    ".safetensors file");
      return BS_INPUT;
    }
    for (uint32_t r = 0; r < all[i].list->n; r++) {
      if (all[i].list->of[r].data == NULL)
        return bs_error_set(err, BS_INPUT, "BS-CHECK-MISSING", "%.200s has no %s of rank %u, but of rank %u",
                            path, all[i].name, r, all[i].list->n - 1);
    }
  }
  return BS_OK;
}

int32_t bs_check_load(const char *path, bs_check_set *out, bs_error *err) {
  struct stat st;
  memset(out, 0, sizeof *out);
  if (stat(path, &st) != 0)
    return bs_error_errno(err, BS_INPUT, "BS-CHECK-OPEN", errno, "cannot read %.200s", path);
  int32_t rc = S_ISDIR(st.st_mode) ? read_folder(out, path, err) : read_file(out, path, err);
  if (rc == BS_OK) rc = check_whole(out, path, err);
  return rc;
}

void bs_check_free(bs_check_set *set) {
  bs_check_list *all[] = {&set->x, &set->w, &set->bias, &set->y, &set->partial, &set->columns};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    for (uint32_t r = 0; r < all[i]->n; r++) free(all[i]->of[r].data);
  memset(set, 0, sizeof *set);
}

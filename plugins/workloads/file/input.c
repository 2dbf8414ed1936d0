/* SPDX-License-Identifier: MIT
 * input.c - opening the file and choosing the array that an option names (file.h). Called by open.c. */
#include <inttypes.h>

#include "file.h"

static char *copy(const bs_host *host, const char *text, size_t n) {
  char *s = host->alloc(host->ctx, n + 1, 16);
  if (s != NULL) memcpy(s, text, n);
  return s;
}

static int ends_with(const char *text, size_t n, const char *end) {
  size_t m = strlen(end);
  return n >= m && memcmp(text + n - m, end, m) == 0;
}

/* Finds the end of the path: the '#' after ".safetensors", else the last '#', else NULL. */
static const char *find_hash(const char *text) {
  const char *end = strstr(text, ".safetensors#");
  return end != NULL ? end + strlen(".safetensors") : strrchr(text, '#');
}

static int32_t open_npy(bs_file_input *in, bs_error *err) {
  int32_t rc = bs_npy_open(in->path, &in->npy, err);
  if (rc != BS_OK) return rc;
  in->map = &in->npy.map;
  in->offset = in->npy.offset;
  in->dtype = in->npy.dtype;
  in->rank = in->npy.rank;
  in->dims = in->npy.dims;
  return BS_OK;
}

int32_t bs_file_input_choose(bs_file_input *in, const char *tensor, bs_error *err) {
  const bs_st_tensor *t = NULL;
  int32_t rc = bs_st_find(&in->st, tensor, &t, err);
  if (rc != BS_OK) {
    if (err != NULL) snprintf(err->where, sizeof err->where, "%s", in->path);
    return rc;
  }
  in->offset = t->offset;
  in->dtype = t->dtype;
  in->rank = t->rank;
  in->dims = t->dims;
  return BS_OK;
}

static int32_t open_safetensors(bs_file_input *in, bs_error *err) {
  int32_t rc = bs_st_open(in->path, &in->st, err);
  if (rc != BS_OK) return rc;
  in->map = &in->st.map;
  return bs_file_input_choose(in, in->tensor, err);
}

static int32_t bad_text(const char *option, const char *text, bs_error *err) {
  bs_fail(err, BS_CONFIG, "BS-WL-FILE", "'%s' is neither path.npy nor path.safetensors#tensor", text);
  bs_fail_hint(err, "a tensor of a safetensors file is named after '#'");
  return bs_wl_at(err, BS_CONFIG, option);
}

int32_t bs_file_input_open(const bs_host *host, const char *option, const char *text, bs_file_input *out,
                           bs_error *err) {
  const char *hash = find_hash(text);
  size_t path_length = hash != NULL ? (size_t)(hash - text) : strlen(text);
  memset(out, 0, sizeof *out);
  out->host = host;
  out->option = option;
  if (ends_with(text, strlen(text), ".npy")) hash = NULL, path_length = strlen(text);
  if (path_length == 0 || (hash == NULL && !ends_with(text, path_length, ".npy")) ||
      (hash != NULL && hash[1] == '\0'))
    return bad_text(option, text, err);
  out->path = copy(host, text, path_length);
  if (hash != NULL) out->tensor = copy(host, hash + 1, strlen(hash + 1));
  if (out->path == NULL || (hash != NULL && out->tensor == NULL)) {
    bs_file_input_close(out);
    return bs_fail(err, BS_NO_MEMORY, "BS-MEM", "cannot allocate memory for a path");
  }
  int32_t rc = hash != NULL ? open_safetensors(out, err) : open_npy(out, err);
  if (rc != BS_OK) bs_file_input_close(out);
  return rc;
}

void bs_file_input_close(bs_file_input *in) {
  if (in->host == NULL) return;
  bs_npy_close(&in->npy);
  bs_st_close(&in->st);
  if (in->path != NULL) in->host->free(in->host->ctx, in->path);
  if (in->tensor != NULL) in->host->free(in->host->ctx, in->tensor);
  memset(in, 0, sizeof *in);
}

void bs_file_input_label(const bs_file_input *in, char *out, size_t size) {
  const char *slash = strrchr(in->path, '/');
  const char *base = slash != NULL ? slash + 1 : in->path;
  char dims[64] = "";
  size_t n = 0;
  for (uint32_t i = 0; i < in->rank && n < sizeof dims; i++)
    n += (size_t)snprintf(dims + n, sizeof dims - n, "%s%" PRId64, i == 0 ? "" : ", ", in->dims[i]);
  snprintf(out, size, "%s%s%s [%s]", base, in->tensor != NULL ? "#" : "",
           in->tensor != NULL ? in->tensor : "", dims);
}

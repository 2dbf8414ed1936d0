/* SPDX-License-Identifier: MIT
 * open.c - the workload "file": which file gives which part, whether the shapes agree with each other and
 * with model.B/N/K, and one scan for NaN and Inf. Registered by plugin.c. */
#include <inttypes.h>
#include <unistd.h>

#include "workload.h"

typedef struct bs_file_workload {
  const bs_host *host;
  bs_file_input inputs[4]; /* by enum bs_workload_part; map NULL: not from a file */
  bs_file_matrix matrices[4];
  bs_generated x, bias; /* used where there is no file */
  uint32_t from_file;   /* bit p: part p is read from inputs[p] */
  uint32_t made;        /* bit p: part p is generated */
  int allow_nonfinite;
  uint64_t nonfinite;
  bs_workload_info info;
} bs_file_workload;

static int32_t shape_error(const bs_file_input *in, const char *wanted, bs_error *err) {
  char label[160];
  bs_file_input_label(in, label, sizeof label);
  bs_fail(err, BS_INPUT, "BS-WL-SHAPE", "%s: %s is wanted", label, wanted);
  return bs_wl_at(err, BS_INPUT, in->option);
}

/* Leading dimensions are rows. The reader has bounded the product unless a dimension is zero. */
static int32_t flatten(const bs_file_input *in, const char *wanted, int64_t *out_rows, int64_t *out_cols,
                       bs_error *err) {
  int64_t rows = 1;
  if (in->rank < 2) return shape_error(in, wanted, err);
  for (uint32_t i = 0; i < in->rank; i++)
    if (in->dims[i] == 0) return shape_error(in, wanted, err);
  for (uint32_t i = 0; i + 1 < in->rank; i++) rows *= in->dims[i];
  *out_rows = rows;
  *out_cols = in->dims[in->rank - 1];
  return BS_OK;
}

static void set_matrix(bs_file_workload *w, uint32_t part, int64_t rows, int64_t cols, uint32_t transposed,
                       uint32_t dtype) {
  bs_file_matrix *m = &w->matrices[part];
  m->host = w->host;
  m->input = &w->inputs[part];
  m->rows = rows;
  m->cols = cols;
  m->transposed = transposed;
  m->dtype = dtype;
  w->from_file |= 1u << part;
}

/* A size given by the model must be the file's. */
static int32_t agree(const char *name, int64_t given, int64_t found, const bs_file_input *in, bs_error *err) {
  char label[160];
  if (given == 0 || given == found) return BS_OK;
  bs_file_input_label(in, label, sizeof label);
  bs_fail(err, BS_CONFIG, "BS-WL-SIZE", "model.%s is %" PRId64 ", workload.%s has %s=%" PRId64 " (%s)", name,
          given, in->option, name, found, label);
  bs_fail_hint(err, "--set model.%s=%" PRId64, name, found);
  return bs_wl_at(err, BS_CONFIG, in->option);
}

static int32_t open_weights(bs_file_workload *w, const bs_workload_request *r, bs_error *err) {
  bs_file_input *in = &w->inputs[BS_PART_W];
  const char *text = bs_wl_text(r, "weights");
  int transpose = 0;
  int32_t rc = bs_wl_bool(r, "transpose", 0, &transpose, err);
  if (rc != BS_OK) return rc;
  if (text == NULL) {
    bs_fail(err, BS_CONFIG, "BS-WL-FILE", "workload 'file' needs workload.weights");
    bs_fail_hint(err, "--set workload.weights=model.safetensors#layer.weight");
    return bs_wl_at(err, BS_CONFIG, "weights");
  }
  rc = bs_file_input_open(w->host, "weights", text, in, err);
  if (rc != BS_OK) return rc;
  if (in->rank != 2 || in->dims[0] == 0 || in->dims[1] == 0)
    return shape_error(in, transpose ? "a matrix [K, N]" : "a matrix [N, K]", err);
  w->info.N = in->dims[transpose ? 1 : 0];
  w->info.K = in->dims[transpose ? 0 : 1];
  set_matrix(w, BS_PART_W, w->info.N, w->info.K, transpose ? 1u : 0u, r->dtype);
  rc = agree("N", r->N, w->info.N, in, err);
  return rc == BS_OK ? agree("K", r->K, w->info.K, in, err) : rc;
}

static void make_normal(bs_file_workload *w, bs_generated *g, uint32_t part, int64_t rows, int64_t cols,
                        uint64_t seed, uint32_t stream, uint32_t dtype) {
  bs_generated_make(g, w->host, rows, cols, seed, stream, dtype);
  g->by.law = BS_LAW_NORMAL;
  g->by.b = 1.0f;
  w->made |= 1u << part;
}

static int32_t open_x(bs_file_workload *w, const bs_workload_request *r, bs_error *err) {
  bs_file_input *in = &w->inputs[BS_PART_X];
  const char *text = bs_wl_text(r, "x");
  int64_t rows = 0, cols = 0;
  if (r->B < 0) return bs_fail(err, BS_CONFIG, "BS-WL-SIZE", "model.B is %" PRId64, r->B);
  if (text == NULL) {
    int64_t elements;
    if (r->B == 0) {
      bs_fail(err, BS_CONFIG, "BS-WL-SIZE", "model.B is missing, and workload.x is not given");
      return bs_fail_hint(err, "--set model.B=64, or workload.x=path.npy");
    }
    if (__builtin_mul_overflow(r->B, w->info.K, &elements) || elements > INT64_MAX / 8)
      return bs_fail(err, BS_CONFIG, "BS-WL-SIZE", "B=%" PRId64 " K=%" PRId64 " cannot be addressed", r->B,
                     w->info.K);
    make_normal(w, &w->x, BS_PART_X, r->B, w->info.K, r->seed, BS_STREAM_X, r->dtype);
    w->info.B = r->B;
    return BS_OK;
  }
  int32_t rc = bs_file_input_open(w->host, "x", text, in, err);
  if (rc == BS_OK) rc = flatten(in, "a matrix [B, K]", &rows, &cols, err);
  if (rc != BS_OK) return rc;
  if (cols != w->info.K) {
    bs_fail(err, BS_INPUT, "BS-WL-SHAPE", "workload.x has K=%" PRId64 ", workload.weights has K=%" PRId64,
            cols, w->info.K);
    if (cols == w->info.N) bs_fail_hint(err, "are the weights stored [K,N]? workload.transpose=true");
    return bs_wl_at(err, BS_INPUT, "x");
  }
  if (r->B > rows) return agree("B", r->B, rows, in, err);
  w->info.B = r->B == 0 ? rows : r->B;
  set_matrix(w, BS_PART_X, w->info.B, cols, 0, r->dtype);
  return BS_OK;
}

static int32_t check_bias(bs_file_workload *w, uint32_t dtype, bs_error *err) {
  const bs_file_input *in = &w->inputs[BS_PART_BIAS];
  int64_t n = in->rank == 1 || (in->rank == 2 && in->dims[0] == 1) ? in->dims[in->rank - 1] : -1;
  char wanted[64];
  snprintf(wanted, sizeof wanted, "a vector of N=%" PRId64, w->info.N);
  if (n != w->info.N) return shape_error(in, wanted, err);
  set_matrix(w, BS_PART_BIAS, 1, n, 0, dtype);
  return BS_OK;
}

/* "a.weight" -> "a.bias" in the file of the weights. Absent is no error: *out_found stays 0. */
static int32_t open_auto_bias(bs_file_workload *w, int *out_found, bs_error *err) {
  const bs_file_input *weights = &w->inputs[BS_PART_W];
  static const char from[] = ".weight", to[] = ".bias";
  size_t n = weights->tensor == NULL ? 0 : strlen(weights->tensor), path = strlen(weights->path);
  if (n < sizeof from - 1 || strcmp(weights->tensor + n - (sizeof from - 1), from) != 0) return BS_OK;
  size_t size = path + n + 8;
  char *text = w->host->alloc(w->host->ctx, size, 16);
  if (text == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-MEM", "cannot allocate %zu bytes", size);
  snprintf(text, size, "%.*s%s", (int)(n - (sizeof from - 1)), weights->tensor, to);
  for (uint64_t i = 0; i < weights->st.count && !*out_found; i++)
    *out_found = strcmp(weights->st.tensors[i].name, text) == 0;
  snprintf(text, size, "%s#%.*s%s", weights->path, (int)(n - (sizeof from - 1)), weights->tensor, to);
  int32_t rc = *out_found ? bs_file_input_open(w->host, "bias", text, &w->inputs[BS_PART_BIAS], err) : BS_OK;
  w->host->free(w->host->ctx, text);
  return rc;
}

/* Opens the bias. A given one is read. With "auto", or a model with bias and no option, the tensor next to
 * the weights is read if there is one. For a model with bias whose files have none a bias is generated, and
 * the text reports that. */
static int32_t open_bias(bs_file_workload *w, const bs_workload_request *r, bs_error *err) {
  const char *text = bs_wl_text(r, "bias");
  int found = 0;
  int32_t rc = BS_OK;
  if (text != NULL && strcmp(text, "auto") != 0) {
    found = 1;
    rc = bs_file_input_open(w->host, "bias", text, &w->inputs[BS_PART_BIAS], err);
  } else if (text != NULL || r->has_bias) {
    rc = open_auto_bias(w, &found, err);
  }
  if (rc == BS_OK && found) rc = check_bias(w, r->dtype, err);
  if (rc != BS_OK) return rc;
  if (!found && r->has_bias)
    make_normal(w, &w->bias, BS_PART_BIAS, 1, w->info.N, r->weight_seed, BS_STREAM_BIAS, r->dtype);
  w->info.has_bias = found || r->has_bias;
  return BS_OK;
}

static int32_t open_target(bs_file_workload *w, const bs_workload_request *r, bs_error *err) {
  bs_file_input *in = &w->inputs[BS_PART_TARGET];
  const char *text = bs_wl_text(r, "target");
  int64_t rows = 0, cols = 0;
  if (text != NULL) {
    char wanted[80];
    snprintf(wanted, sizeof wanted, "a matrix [B=%" PRId64 ", N=%" PRId64 "]", w->info.B, w->info.N);
    int32_t rc = bs_file_input_open(w->host, "target", text, in, err);
    if (rc == BS_OK) rc = flatten(in, wanted, &rows, &cols, err);
    if (rc != BS_OK) return rc;
    if (rows < w->info.B || cols != w->info.N) return shape_error(in, wanted, err);
    set_matrix(w, BS_PART_TARGET, w->info.B, w->info.N, 0, r->dtype);
  }
  w->info.has_target = text != NULL;
  return bs_wl_loss(r, text != NULL, &w->info.loss, err);
}

/* A file may be sparse, and far larger than the machine: it is not read through before that is known. */
static int32_t check_memory(const bs_file_matrix *m, bs_error *err) {
  const double gib = 1024.0 * 1024.0 * 1024.0;
  const uint32_t bytes = BS_DTYPE_BYTES(m->dtype);
  const double need = (double)m->rows * (double)m->cols * bytes;
  const double have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  if (need <= have || have <= 0.0) return BS_OK;
  bs_fail(err, BS_NO_MEMORY, "BS-WL-MEMORY",
          "%s is a matrix of %" PRId64 " x %" PRId64 ": %.1f GiB in the model dtype, this machine has %.1f",
          m->input->path, m->rows, m->cols, need / gib, have / gib);
  return bs_wl_at(err, BS_NO_MEMORY, m->input->option);
}

static int32_t scan_all(bs_file_workload *w, const bs_workload_request *r, bs_error *err) {
  int32_t rc = bs_wl_bool(r, "allow_nonfinite", 0, &w->allow_nonfinite, err);
  for (uint32_t part = 0; part < 4 && rc == BS_OK; part++) {
    uint64_t count = 0;
    if (!(w->from_file & 1u << part)) continue;
    rc = check_memory(&w->matrices[part], err);
    if (rc == BS_OK) rc = bs_file_matrix_scan(&w->matrices[part], &count, err);
    w->nonfinite += count;
    if (rc != BS_OK && count > 0 && w->allow_nonfinite) rc = BS_OK;
  }
  return rc;
}

static void describe(bs_file_workload *w, const bs_workload_request *r) {
  char weights[160], x[100], nonfinite[48] = "";
  const char *bias = w->from_file & 1u << BS_PART_BIAS ? "; bias from file"
                     : w->made & 1u << BS_PART_BIAS    ? "; bias generated"
                                                       : "";
  bs_file_input_label(&w->inputs[BS_PART_W], weights, sizeof weights);
  if (w->from_file & 1u << BS_PART_X)
    bs_file_input_label(&w->inputs[BS_PART_X], x, sizeof x);
  else
    snprintf(x, sizeof x, "normal seed %" PRIu64, r->seed);
  if (w->nonfinite > 0) snprintf(nonfinite, sizeof nonfinite, "%" PRIu64 " NaN/Inf allowed; ", w->nonfinite);
  /* The part that must not be cut off comes first. */
  size_t size = sizeof w->info.text;
  int n = snprintf(w->info.text, size, "%sW %s%s%s; X %s", nonfinite, weights,
                   w->matrices[BS_PART_W].transposed ? " transposed" : "", bias, x);
  if (n < 0 || (size_t)n >= size) memcpy(w->info.text + size - 4, "...", 4);
}

int32_t bs_file_open(void *state, const bs_workload_request *request, void **out, bs_error *err) {
  static const char *const keys[] = {"weights", "x",    "bias",           "transpose",
                                     "target",  "loss", "allow_nonfinite"};
  const bs_host *host = state;
  int32_t rc = bs_wl_check_keys(request, "file", keys, 7, err);
  if (rc != BS_OK) return rc;
  bs_file_workload *w = host->alloc(host->ctx, sizeof *w, 64);
  if (w == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-MEM", "cannot allocate %zu bytes", sizeof *w);
  w->host = host;
  w->info.struct_size = (uint32_t)sizeof w->info;
  rc = open_weights(w, request, err);
  if (rc == BS_OK) rc = open_x(w, request, err);
  if (rc == BS_OK) rc = open_bias(w, request, err);
  if (rc == BS_OK) rc = open_target(w, request, err);
  if (rc == BS_OK) rc = scan_all(w, request, err);
  if (rc != BS_OK) {
    bs_file_close(w);
    return rc;
  }
  describe(w, request);
  *out = w;
  return BS_OK;
}

int32_t bs_file_info(void *workload, bs_workload_info *out_info, bs_error *err) {
  const bs_file_workload *w = workload;
  (void)err;
  bs_out_copy(out_info, &w->info, sizeof w->info);
  return BS_OK;
}

int32_t bs_file_source(void *workload, uint32_t part, bs_source *out_source, bs_error *err) {
  bs_file_workload *w = workload;
  if (part < 4 && (w->from_file & 1u << part))
    bs_file_matrix_source(&w->matrices[part], out_source);
  else if (part < 4 && (w->made & 1u << part))
    bs_generated_source(part == BS_PART_X ? &w->x : &w->bias, out_source);
  else
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-WL-PART", "this workload has no part %" PRIu32, part);
  return BS_OK;
}

void bs_file_close(void *workload) {
  bs_file_workload *w = workload;
  for (uint32_t part = 0; part < 4; part++) bs_file_input_close(&w->inputs[part]);
  w->host->free(w->host->ctx, w);
}

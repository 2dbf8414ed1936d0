/* SPDX-License-Identifier: MIT
 * test_file.c - the workload "file": a layer from files made here (and from a trained model where one is at
 * hand) gives the files' numbers in any panels, and every disagreement, NaN or change of a file is an error.
 */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>

#include "core/base/dtype.h"
#include "formats/npy.h"
#include "tests/run_tests.h"
#include "tests/workloads/workload.h"

enum { N = 6, K = 1500, ROWS = 9 };

static char opt[8][600];

/* "key=<folder>/name" in slot i; valid until the slot is used again. */
static const char *file_option(int i, const char *key, const char *name) {
  snprintf(opt[i], sizeof opt[i], "%s=%s/%s", key, files_folder, name);
  return opt[i];
}

static double value_of(int64_t i) {
  return (double)((i * 7919) % 1021) / 64.0 - 8.0;
}

static void write_npy(const char *name, uint32_t dtype, uint32_t rank, const int64_t *dims, int64_t first) {
  int64_t count = 1;
  bs_error err = BS_ERROR_INIT;
  for (uint32_t i = 0; i < rank; i++) count *= dims[i];
  double *values = calloc((size_t)count, sizeof *values);
  void *data = calloc((size_t)count, 8);
  for (int64_t i = 0; i < count; i++) values[i] = value_of(first + i);
  ck_assert_int_eq(bs_convert(dtype, data, BS_F64, values, (uint64_t)count), BS_OK);
  ck_assert_msg(bs_npy_write(files_path(name), dtype, rank, dims, data, &err) == BS_OK, "%s", err.message);
  free(values);
  free(data);
}

static void write_npy_2d(const char *name, uint32_t dtype, int64_t rows, int64_t cols, int64_t first) {
  const int64_t dims[2] = {rows, cols};
  write_npy(name, dtype, 2, dims, first);
}

/* l.weight f32 [N,K], l.bias f32 [N], t.weight bf16 [K,N], odd I16 [4]; values as value_of. */
static void write_model(const char *name) {
  char header[1024];
  const int64_t w = (int64_t)N * K;
  const size_t sizes[4] = {(size_t)w * 4, N * 4, (size_t)w * 2, 8};
  size_t at[5] = {0};
  for (int i = 0; i < 4; i++) at[i + 1] = at[i] + sizes[i];
  int n = snprintf(header + 8, sizeof header - 8,
                   "{\"l.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]},"
                   "\"l.bias\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]},"
                   "\"t.weight\":{\"dtype\":\"BF16\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]},"
                   "\"odd\":{\"dtype\":\"I16\",\"shape\":[4],\"data_offsets\":[%zu,%zu]}} ",
                   N, K, at[0], at[1], N, at[1], at[2], K, N, at[2], at[3], at[3], at[4]);
  for (int i = 0; i < 8; i++) header[i] = (char)((uint64_t)n >> (8 * i));
  char *file = calloc(1, 8 + (size_t)n + at[4]), *data = file + 8 + n;
  memcpy(file, header, 8 + (size_t)n);
  double *values = calloc((size_t)w, sizeof *values);
  void *scratch = calloc((size_t)w, 4);
  for (int64_t i = 0; i < w; i++) values[i] = value_of(i);
  /* Through aligned memory: the header's length is odd on purpose. */
  ck_assert_int_eq(bs_convert(BS_F32, scratch, BS_F64, values, (uint64_t)w), BS_OK);
  memcpy(data, scratch, sizes[0]);
  memcpy(data + at[1], scratch, sizes[1]);
  ck_assert_int_eq(bs_convert(BS_BF16, scratch, BS_F64, values, (uint64_t)w), BS_OK);
  memcpy(data + at[2], scratch, sizes[2]);
  files_write(name, file, 8 + (size_t)n + at[4]);
  free(scratch);
  free(values);
  free(file);
}

static void begin(void) {
  files_begin();
  write_model("m.safetensors");
  write_npy_2d("w64.npy", BS_F64, N, K, 0);
  write_npy_2d("x.npy", BS_F32, ROWS, K, 500);
  write_npy_2d("t.npy", BS_F16, ROWS, N, 900);
  write_npy("b.npy", BS_F32, 1, &(int64_t){N}, 40);
}

/* Element i of part is value_of(first + i), rounded to the model dtype and no further. */
static void check_values(opened *w, uint32_t part, uint32_t model, int64_t first, int64_t t_rows) {
  bs_source s = workload_source(w, part);
  ck_assert_uint_eq(s.dtype, model);
  const uint32_t reads[3] = {model, BS_F32, BS_F64};
  for (int d = 0; d < 3; d++) {
    char *got = workload_read(&s, reads[d]);
    for (int64_t i = 0; i < s.rows * s.cols; i++) {
      /* t_rows: the file holds the transposed matrix. */
      double v = value_of(first + (t_rows ? (i % s.cols) * t_rows + i / s.cols : i));
      char rounded[8], want[8];
      ck_assert_int_eq(
          bs_convert(model, rounded, BS_F64, &v, 1) | bs_convert(reads[d], want, model, rounded, 1), 0);
      if (memcmp(got + (size_t)i * BS_DTYPE_BYTES(reads[d]), want, BS_DTYPE_BYTES(reads[d])) != 0)
        ck_abort_msg("part %u, element %d differs from %g", part, (int)i, v);
    }
    workload_check_panels(&s, reads[d], got);
    free(got);
  }
  workload_check_bounds(&s);
}

START_TEST(a_layer_is_read_as_it_lies_in_the_files) {
  static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F64, BS_F16};
  ask a = {.name = "file",
           .dtype = dtypes[_i],
           .options = {file_option(0, "weights", "m.safetensors#l.weight"), file_option(1, "x", "x.npy"),
                       "bias=auto", file_option(2, "target", "t.npy"), "loss=mse_target"}};
  opened w;
  workload_must_open(&a, &w);
  ck_assert_int_eq(w.info.B, ROWS);
  ck_assert_int_eq(w.info.N, N);
  ck_assert_int_eq(w.info.K, K);
  ck_assert_uint_eq(w.info.has_bias, 1);
  ck_assert_uint_eq(w.info.has_target, 1);
  ck_assert_uint_eq(w.info.loss, BS_LOSS_MSE_TARGET);
  ck_assert_ptr_nonnull(
      strstr(w.info.text, "m.safetensors#l.weight [6, 1500]; bias from file; X x.npy [9, 1500]"));
  check_values(&w, BS_PART_W, a.dtype, 0, 0);
  check_values(&w, BS_PART_X, a.dtype, 500, 0);
  check_values(&w, BS_PART_BIAS, a.dtype, 0, 0);
  check_values(&w, BS_PART_TARGET, a.dtype, 900, 0);
  workload_close(&w);
}
END_TEST

START_TEST(transposed_and_wider_weights) {
  ask a = {.name = "file",
           .dtype = BS_BF16,
           .B = 4,
           .N = N,
           .K = K,
           .options = {file_option(0, "weights", "m.safetensors#t.weight"), "transpose=true"}};
  opened w;
  workload_must_open(&a, &w);
  ck_assert_ptr_nonnull(strstr(w.info.text, "transposed"));
  check_values(&w, BS_PART_W, BS_BF16, 0, N);
  workload_close(&w);
  a = (ask){.name = "file",
            .dtype = BS_F16,
            .B = 4,
            .has_bias = 1,
            .options = {file_option(0, "weights", "w64.npy"), file_option(1, "bias", "b.npy")}};
  workload_must_open(&a, &w);
  check_values(&w, BS_PART_W, BS_F16, 0, 0);
  check_values(&w, BS_PART_BIAS, BS_F16, 40, 0);
  workload_close(&w);
}
END_TEST

START_TEST(what_is_not_in_a_file_is_generated_and_said) {
  ask a = {.name = "file",
           .B = 4,
           .seed = 9,
           .weight_seed = 9,
           .has_bias = 1,
           .options = {file_option(0, "weights", "w64.npy")}};
  ask like = {.name = "gaussian", .B = 4, .N = N, .K = K, .seed = 9, .weight_seed = 9, .has_bias = 1};
  opened w, g;
  workload_must_open(&a, &w);
  workload_must_open(&like, &g);
  ck_assert_ptr_nonnull(strstr(w.info.text, "bias generated"));
  ck_assert_ptr_nonnull(strstr(w.info.text, "X normal seed 9"));
  for (uint32_t part = BS_PART_X; part <= BS_PART_BIAS; part += 2) {
    bs_source s = workload_source(&w, part), t = workload_source(&g, part);
    float *got = workload_read(&s, BS_F32), *want = workload_read(&t, BS_F32);
    ck_assert_int_eq(memcmp(got, want, (size_t)(s.rows * s.cols) * sizeof *got), 0);
    free(got);
    free(want);
  }
  workload_close(&w);
  workload_close(&g);
  /* Without bias in the model: none; auto where there is none beside the weights: none. */
  a.has_bias = 0;
  workload_must_open(&a, &w);
  ck_assert_uint_eq(w.info.has_bias, 0);
  workload_close(&w);
  a.options[0] = file_option(0, "weights", "m.safetensors#t.weight");
  a.options[1] = "transpose=yes";
  a.options[2] = "bias=auto";
  workload_must_open(&a, &w);
  ck_assert_uint_eq(w.info.has_bias, 0);
  workload_close(&w);
}
END_TEST

START_TEST(leading_dimensions_are_rows_and_b_takes_the_first) {
  const int64_t dims[3] = {3, 3, K}, row[2] = {1, N};
  write_npy("x3.npy", BS_F32, 3, dims, 500);
  write_npy("row.npy", BS_F32, 2, row, 40);
  ask a = {.name = "file",
           .B = 5,
           .options = {file_option(0, "weights", "w64.npy"), file_option(1, "x", "x3.npy"),
                       file_option(2, "bias", "row.npy"), file_option(3, "target", "t.npy")}};
  opened w;
  workload_must_open(&a, &w);
  ck_assert_int_eq(w.info.B, 5);
  check_values(&w, BS_PART_X, BS_F32, 500, 0);
  bs_source s = workload_source(&w, BS_PART_TARGET);
  ck_assert_int_eq(s.rows, 5);
  workload_close(&w);
}
END_TEST

START_TEST(disagreements_are_errors_with_the_numbers) {
  const char *weights = file_option(0, "weights", "m.safetensors#l.weight"),
             *x = file_option(1, "x", "x.npy");
  write_npy_2d("narrow.npy", BS_F32, 4, N, 0);
  write_npy("v.npy", BS_F32, 1, &(int64_t){K}, 0);
  write_npy_2d("none.npy", BS_F32, 0, K, 0);
  ask a = {.name = "file", .B = 4, .N = 4096, .options = {weights}};
  workload_refused(&a, BS_CONFIG, "BS-WL-SIZE", "model.N is 4096, workload.weights has N=6");
  a = (ask){.name = "file", .B = 4, .K = 6, .options = {weights}};
  workload_refused(&a, BS_CONFIG, "BS-WL-SIZE", "model.K is 6, workload.weights has K=1500");
  a = (ask){.name = "file", .B = 10, .options = {weights, x}};
  workload_refused(&a, BS_CONFIG, "BS-WL-SIZE", "model.B is 10, workload.x has B=9");
  a = (ask){.name = "file", .options = {weights}};
  workload_refused(&a, BS_CONFIG, "BS-WL-SIZE", "model.B");
  a = (ask){.name = "file", .B = -1, .options = {weights}};
  workload_refused(&a, BS_CONFIG, "BS-WL-SIZE", "model.B is -1");
  a = (ask){.name = "file", .B = INT64_MAX / 2, .options = {weights}};
  workload_refused(&a, BS_CONFIG, "BS-WL-SIZE", "addressed");
  a = (ask){.name = "file", .B = 4};
  workload_refused(&a, BS_CONFIG, "BS-WL-FILE", "workload.weights");
  static const struct {
    const char *key, *file, *id, *part;
    int32_t code;
  } cases[] = {
      {"weights", "m.safetensors", "BS-WL-FILE", "tensor", BS_CONFIG},
      {"weights", "m.safetensors#", "BS-WL-FILE", "weights", BS_CONFIG},
      {"weights", "m.bin", "BS-WL-FILE", "m.bin", BS_CONFIG},
      {"weights", "m.safetensors#l.wieght", "BS-ST-NOTFOUND", "l.weight", BS_INPUT},
      {"weights", "m.safetensors#odd", "BS-ST-DTYPE", "I16", BS_INPUT},
      {"weights", "m.safetensors#l.bias", "BS-WL-SHAPE", "[N, K]", BS_INPUT},
      {"weights", "absent.npy", "BS-NPY-READ", "absent.npy", BS_INPUT},
      {"weights", "absent.safetensors#a", "BS-ST-READ", "absent", BS_INPUT},
      {"weights", "v.npy", "BS-WL-SHAPE", "weights", BS_INPUT},
      {"weights", "none.npy", "BS-WL-SHAPE", "[0, 1500]", BS_INPUT},
      {"x", "narrow.npy", "BS-WL-SHAPE", "K=6, workload.weights has K=1500", BS_INPUT},
      {"x", "narrow.npy", "BS-WL-SHAPE", "transpose=true", BS_INPUT},
      {"x", "v.npy", "BS-WL-SHAPE", "[B, K]", BS_INPUT},
      {"x", "none.npy", "BS-WL-SHAPE", "[B, K]", BS_INPUT},
      {"bias", "v.npy", "BS-WL-SHAPE", "N=6", BS_INPUT},
      {"bias", "narrow.npy", "BS-WL-SHAPE", "N=6", BS_INPUT},
      {"target", "narrow.npy", "BS-WL-SHAPE", "B=9", BS_INPUT},
      {"target", "x.npy", "BS-WL-SHAPE", "N=6", BS_INPUT},
      {"wieghts", "x.npy", "BS-WL-KEY", "weights", BS_CONFIG},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    a = (ask){.name = "file", .options = {weights, x, file_option(2, cases[i].key, cases[i].file)}};
    if (strcmp(cases[i].key, "weights") == 0) a.options[0] = opt[2], a.options[2] = NULL;
    if (strcmp(cases[i].key, "x") == 0) a.options[1] = opt[2], a.options[2] = NULL;
    workload_refused(&a, cases[i].code, cases[i].id, cases[i].part);
  }
  a = (ask){.name = "file", .options = {weights, x, "transpose=maybe"}};
  workload_refused(&a, BS_CONFIG, "BS-WL-VALUE", "maybe");
  a = (ask){.name = "file", .options = {weights, x, "loss=mse_target"}};
  workload_refused(&a, BS_CONFIG, "BS-WL-LOSS", "target");
}
END_TEST

/* 8 TiB that take no room on the disk: refused without being read. */
START_TEST(a_matrix_larger_than_the_machine) {
  char header[128];
  memset(header, ' ', sizeof header);
  memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
  const char dict[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2097152, 1048576), }";
  memcpy(header + 10, dict, sizeof dict - 1);
  header[127] = '\n';
  FILE *f = fopen(files_path("vast.npy"), "w");
  ck_assert_uint_eq(fwrite(header, sizeof header, 1, f), 1);
  const int made = fflush(f) == 0 && ftruncate(fileno(f), 128 + ((off_t)8 << 40)) == 0;
  fclose(f);
  const ask a = {.name = "file", .B = 4, .options = {file_option(0, "weights", "vast.npy")}};
  if (made) workload_refused(&a, BS_NO_MEMORY, "BS-WL-MEMORY", "8192.0 GiB");
}
END_TEST

START_TEST(names_with_a_hash_and_without_an_extension) {
  opened w;
  ck_assert_int_eq(link(files_path("m.safetensors"), files_path("plain#model")), 0);
  ck_assert_int_eq(link(files_path("w64.npy"), files_path("w#6.npy")), 0);
  ask a = {.name = "file", .B = 4, .options = {file_option(0, "weights", "plain#model#l.weight")}};
  workload_must_open(&a, &w);
  workload_close(&w);
  a.options[0] = file_option(0, "weights", "w#6.npy");
  workload_must_open(&a, &w);
  workload_close(&w);
}
END_TEST

/* One bad value written into x.npy, in the second block of the scan. */
static void spoil(float value, int64_t at) {
  bs_npy npy;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_npy_open(files_path("x.npy"), &npy, &err), BS_OK);
  int fd = open(files_path("x.npy"), O_WRONLY);
  ck_assert_int_eq((int)pwrite(fd, &value, 4, (off_t)npy.offset + at * 4), 4);
  close(fd);
  bs_npy_close(&npy);
}

START_TEST(nan_and_inf_are_said) {
  ask a = {.name = "file", .options = {file_option(0, "weights", "w64.npy"), file_option(1, "x", "x.npy")}};
  opened w;
  workload_must_open(&a, &w);
  workload_close(&w);
  spoil(NAN, 2 * K + 17);
  spoil(INFINITY, 5 * K);
  workload_refused(&a, BS_INPUT, "BS-IN-NAN", "2 of 13500 values are not finite");
  workload_refused(&a, BS_INPUT, "BS-IN-NAN", "x.npy: element [2, 17] is NaN");
  workload_refused(&a, BS_INPUT, "BS-IN-NAN", "allow_nonfinite=true");
  workload_refused(&a, BS_INPUT, "BS-IN-NAN", "workload.x");
  /* Rows that are not used are not judged. */
  a.B = 2;
  workload_must_open(&a, &w);
  workload_close(&w);
  a.B = 0;
  a.options[2] = "allow_nonfinite=true";
  workload_must_open(&a, &w);
  ck_assert_msg(strncmp(w.info.text, "2 NaN/Inf allowed; ", 19) == 0, "%s", w.info.text);
  bs_source s = workload_source(&w, BS_PART_X);
  float *x = workload_read(&s, BS_F32);
  ck_assert(isnan(x[2 * K + 17]) && isinf(x[5 * K]));
  free(x);
  workload_close(&w);
  /* Finite in the file, but not in the model's dtype. */
  spoil(1.0f, 2 * K + 17);
  spoil(70000.0f, 5 * K);
  a.options[2] = NULL;
  workload_must_open(&a, &w);
  workload_close(&w);
  a.dtype = BS_F16;
  workload_refused(&a, BS_INPUT, "BS-IN-NAN", "element [5, 0] is beyond the model dtype");
}
END_TEST

typedef struct reader {
  const bs_source *source;
  const float *want;
  int wrong;
} reader;

static void *read_often(void *arg) {
  reader *r = arg;
  float *got = calloc((size_t)N * K, sizeof *got);
  for (int i = 0; i < 50; i++) {
    bs_error err = BS_ERROR_INIT;
    memset(got, 0, sizeof *got * (size_t)N * K);
    if (r->source->read(r->source->ctx, i % 3, N - 3, NULL, BS_F32, got, K, &err) != BS_OK ||
        memcmp(got, r->want + (i % 3) * K, sizeof *got * (size_t)(N - 3) * K) != 0)
      r->wrong++;
  }
  free(got);
  return NULL;
}

START_TEST(ranks_may_read_at_once) {
  static const uint32_t dtypes[] = {BS_F32, BS_BF16}; /* straight from the file, and rounded */
  for (int d = 0; d < 2; d++) {
    ask a = {.name = "file", .dtype = dtypes[d], .B = 4, .options = {file_option(0, "weights", "w64.npy")}};
    pthread_t threads[4];
    reader readers[4];
    opened w;
    workload_must_open(&a, &w);
    bs_source s = workload_source(&w, BS_PART_W);
    float *want = workload_read(&s, BS_F32);
    for (int i = 0; i < 4; i++) {
      readers[i] = (reader){&s, want, 0};
      ck_assert_int_eq(pthread_create(&threads[i], NULL, read_often, &readers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
      ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
      ck_assert_int_eq(readers[i].wrong, 0);
    }
    free(want);
    workload_close(&w);
  }
}
END_TEST

START_TEST(a_file_that_changes_while_open_is_an_error) {
  static const char *const names[] = {"w64.npy", "x.npy"};
  ask a = {.name = "file"};
  float *out = calloc((size_t)ROWS * K, sizeof *out);
  for (int round = 0; round < 2; round++)
    for (uint32_t part = BS_PART_X; part <= BS_PART_W; part++) {
      opened w;
      bs_error err = BS_ERROR_INIT;
      files_end();
      begin();
      a.options[0] = file_option(0, "weights", "w64.npy");
      a.options[1] = file_option(1, "x", "x.npy");
      const char *path = files_path(names[part == BS_PART_X]);
      workload_must_open(&a, &w);
      bs_source s = workload_source(&w, part);
      ck_assert_int_eq(s.read(s.ctx, 0, s.rows, NULL, BS_F32, out, K, &err), BS_OK);
      if (round == 0) {
        ck_assert_int_eq(truncate(path, 4096), 0); /* a mapping would be SIGBUS */
      } else {
        struct timespec times[2] = {{1000, 0}, {1000, 0}};
        ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
      }
      files_expect(&err, s.read(s.ctx, 0, s.rows, NULL, BS_F32, out, K, &err), BS_INPUT, "BS-FILE-CHANGED",
                   path);
      /* Also a panel that is still there: it may be of another file by now. */
      files_expect(&err, s.read(s.ctx, 0, 1, NULL, BS_F32, out, K, &err), BS_INPUT, "BS-FILE-CHANGED", path);
      workload_close(&w);
    }
  free(out);
}
END_TEST

START_TEST(a_trained_layer_is_a_workload) {
  const char *path = getenv("BS_TEST_MINILM");
  char weights[600];
  opened w;
  if (path == NULL || *path == '\0') {
    printf("skipped: BS_TEST_MINILM is not set (scripts/fetch-trained-layer)\n");
    return;
  }
  snprintf(weights, sizeof weights, "weights=%s#encoder.layer.0.intermediate.dense.weight", path);
  ask a = {.name = "file", .dtype = BS_BF16, .B = 64, .options = {weights, "bias=auto"}};
  workload_must_open(&a, &w);
  ck_assert_int_eq(w.info.N, 1536);
  ck_assert_int_eq(w.info.K, 384);
  ck_assert_uint_eq(w.info.has_bias, 1);
  bs_source s = workload_source(&w, BS_PART_W);
  uint16_t *all = workload_read(&s, BS_BF16);
  double sum = 0, squares = 0;
  for (int i = 0; i < 1536 * 384; i++) {
    double v = bs_load_f64(BS_BF16, all, i);
    sum += v;
    squares += v * v;
  }
  /* A trained layer: centred, and far narrower than a standard normal. */
  ck_assert(fabs(sum / (1536 * 384)) < 0.01);
  ck_assert(squares / (1536 * 384) > 1e-4 && squares / (1536 * 384) < 0.1);
  workload_check_panels(&s, BS_BF16, all);
  free(all);
  workload_close(&w);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_layer_is_read_as_it_lies_in_the_files, 4},
                             {transposed_and_wider_weights},
                             {what_is_not_in_a_file_is_generated_and_said},
                             {leading_dimensions_are_rows_and_b_takes_the_first},
                             {disagreements_are_errors_with_the_numbers},
                             {a_matrix_larger_than_the_machine},
                             {names_with_a_hash_and_without_an_extension},
                             {nan_and_inf_are_said},
                             {ranks_may_read_at_once},
                             {a_file_that_changes_while_open_is_an_error},
                             {a_trained_layer_is_a_workload},
                             {0}};
  return run_tests("file", tests, (test_setup){begin, files_end});
}

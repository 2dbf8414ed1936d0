/* SPDX-License-Identifier: MIT
 * model_files.h - models and arrays that tests of `bsrun model` write into a folder. */
#ifndef TESTS_BSRUN_MODEL_FILES_H
#define TESTS_BSRUN_MODEL_FILES_H
#include <jansson.h>

#include "formats/npy.h"
#include "tests/graph/onnx_text.h"
#include "tests/spawn.h"

static inline void write_array(const char *name, uint32_t dtype, uint32_t rank, const int64_t *dims,
                               const void *data) {
  char path[800];
  bs_error err = BS_ERROR_INIT;
  snprintf(path, sizeof path, "%s/%s", dir, name);
  ck_assert_msg(bs_npy_write(path, dtype, rank, dims, data, &err) == BS_OK, "%s", err.message);
}

/* The record number `index` of the run folder that the output names, as JSON; DONE and the rest are there. */
static inline json_t *model_record(const ran *r, int index) {
  static const char *const files[] = {"config.yaml", "env.json", "seed.txt", "log.txt", "DONE"};
  const char *folder = run_folder(r, dir, 0);
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    char *text = read_text(folder, files[i]);
    ck_assert_msg(text != NULL, "no %s in %s", files[i], folder);
    free(text);
  }
  char *lines = read_text(folder, "metrics.jsonl"), *line = lines;
  for (int i = 0; i < index && line != NULL; i++) line = strchr(line, '\n') + 1;
  json_t *record = json_loadb(line, strcspn(line, "\n"), 0, NULL);
  ck_assert_msg(record != NULL, "%s", lines);
  free(lines);
  return record;
}

/* A model of ONNX's text syntax as a file. */
static inline void write_onnx(const char *name, const char *text) {
  unsigned char *bytes;
  size_t size;
  char why[200] = "";
  ck_assert_msg(onnx_text(text, 0, &bytes, &size, why, sizeof why), "%s", why);
  run_write(dir, name, bytes, size);
  free(bytes);
}

/* A GPT-2 of one layer whose next token is (number of tokens before it) mod 4: attention and MLP give zero,
 * the place p adds 4 to the score of the token p + 1 mod 4. A cache of 16 tokens. */
static inline void write_gpt2(const char *in) {
  enum { D = 4, PLACES = 16 };
  static const struct {
    const char *name, *shape;
    int n;
  } tensors[] = {{"wte.weight", "4,4", 16},
                 {"wpe.weight", "16,4", 64},
                 {"h.0.ln_1.weight", "4", 4},
                 {"h.0.ln_1.bias", "4", 4},
                 {"h.0.attn.c_attn.weight", "4,12", 48},
                 {"h.0.attn.c_attn.bias", "12", 12},
                 {"h.0.attn.c_proj.weight", "4,4", 16},
                 {"h.0.attn.c_proj.bias", "4", 4},
                 {"h.0.ln_2.weight", "4", 4},
                 {"h.0.ln_2.bias", "4", 4},
                 {"h.0.mlp.c_fc.weight", "4,16", 64},
                 {"h.0.mlp.c_fc.bias", "16", 16},
                 {"h.0.mlp.c_proj.weight", "16,4", 64},
                 {"h.0.mlp.c_proj.bias", "4", 4},
                 {"ln_f.weight", "4", 4},
                 {"ln_f.bias", "4", 4}};
  static float data[512];
  char file[8192];
  size_t n = 0, at = 9;
  memset(data, 0, sizeof data);
  file[8] = '{';
  for (size_t t = 0; t < sizeof tensors / sizeof tensors[0]; t++) {
    at += (size_t)snprintf(
        file + at, sizeof file - at, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
        t > 0 ? "," : "", tensors[t].name, tensors[t].shape, 4 * n, 4 * (n + (size_t)tensors[t].n));
    if (strstr(tensors[t].name, "ln_") != NULL && strstr(tensors[t].name, "weight") != NULL)
      for (int i = 0; i < D; i++) data[n + (size_t)i] = 1;
    for (size_t i = 0; t == 0 && i < D; i++) data[n + i * D + i] = 1;
    for (size_t p = 0; t == 1 && p < PLACES; p++) data[n + p * D + (p + 1) % D] = 4;
    n += (size_t)tensors[t].n;
  }
  file[at++] = '}';
  const uint64_t header = at - 8;
  memcpy(file, &header, 8);
  memcpy(file + at, data, 4 * n);
  run_write(in, "model.safetensors", file, at + 4 * n);
  write_text(
      in, "config.json",
      "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":4,\"n_positions\":16,"
      "\"n_embd\":4,\"n_layer\":1,\"n_head\":2,\"activation_function\":\"gelu_new\"}");
}
#endif

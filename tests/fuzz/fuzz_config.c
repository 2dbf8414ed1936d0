/* SPDX-License-Identifier: MIT
 * fuzz_config.c - any bytes as the config.json of a folder whose weights fit a small GPT-2 and a small Llama:
 * an error that names itself, or a whole model. */
#include <string.h>
#include <sys/stat.h>

#include "core/base/error.h"
#include "graph/import/import.h"
#include "tests/fuzz/input.h"

#define L "model.layers.0."
static const struct {
  const char *name, *shape;
  size_t count;
} tensors[] = {{"wte.weight", "5,4", 20},
               {"wpe.weight", "8,4", 32},
               {"h.0.ln_1.weight", "4", 4},
               {"h.0.ln_1.bias", "4", 4},
               {"h.0.attn.c_attn.weight", "4,12", 48},
               {"h.0.attn.c_attn.bias", "12", 12},
               {"h.0.attn.c_proj.weight", "4,4", 16},
               {"h.0.ln_2.weight", "4", 4},
               {"h.0.ln_2.bias", "4", 4},
               {"h.0.mlp.c_fc.weight", "4,16", 64},
               {"h.0.mlp.c_proj.weight", "16,4", 64},
               {"ln_f.weight", "4", 4},
               {"ln_f.bias", "4", 4},
               {"model.embed_tokens.weight", "5,4", 20},
               {L "input_layernorm.weight", "4", 4},
               {L "self_attn.q_proj.weight", "4,4", 16},
               {L "self_attn.k_proj.weight", "2,4", 8},
               {L "self_attn.v_proj.weight", "2,4", 8},
               {L "self_attn.q_norm.weight", "2", 2},
               {L "self_attn.k_norm.weight", "2", 2},
               {L "self_attn.o_proj.weight", "4,4", 16},
               {L "post_attention_layernorm.weight", "4", 4},
               {L "mlp.gate_proj.weight", "6,4", 24},
               {L "mlp.up_proj.weight", "6,4", 24},
               {L "mlp.down_proj.weight", "4,6", 24},
               {"model.norm.weight", "4", 4},
               {"lm_head.weight", "5,4", 20}};

static char folder[64], config[96];

static void write_weights(void) {
  static const float values[64] = {1};
  char header[8192], path[96];
  size_t at = 0, bytes = 0, n = sizeof tensors / sizeof *tensors;
  for (size_t i = 0; i < n; i++) {
    at += (size_t)snprintf(header + at, sizeof header - at,
                           "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                           i == 0 ? '{' : ',', tensors[i].name, tensors[i].shape, bytes,
                           bytes + 4 * tensors[i].count);
    bytes += 4 * tensors[i].count;
  }
  header[at++] = '}';
  const uint64_t length = at;
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  FILE *f = fopen(path, "wb");
  if (f == NULL) abort();
  fwrite(&length, 8, 1, f);
  fwrite(header, 1, at, f);
  for (size_t i = 0; i < n; i++) fwrite(values, 4, tensors[i].count, f);
  fclose(f);
}

static void end(void) {
  char path[96];
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  unlink(path);
  unlink(config);
  rmdir(folder);
}

static void begin(void) {
  const char *base = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%.40s/bs-fuzz-XXXXXX", base != NULL ? base : "/tmp");
  if (mkdtemp(folder) == NULL) abort();
  snprintf(config, sizeof config, "%s/config.json", folder);
  write_weights();
  atexit(end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  gmodel *m = NULL;
  bs_error err = BS_ERROR_INIT;
  if (folder[0] == '\0') begin();
  unlink(config); /* ext4 waits for the disk when a file is cut and written again */
  FILE *f = fopen(config, "wb");
  if (f == NULL) abort();
  if (size > 0) fwrite(data, 1, size, f);
  fclose(f);
  const int32_t rc = import_folder(folder, NULL, &m, &err);
  if (rc == BS_OK) {
    if (gmodel_check(m, &err) != BS_OK || m->n_states == 0) abort();
    gmodel_free(m);
  } else if (rc != BS_INPUT || m != NULL || strncmp(err.id, "BS-HF-", 6) != 0 || err.where[0] == '\0') {
    abort();
  }
  return 0;
}

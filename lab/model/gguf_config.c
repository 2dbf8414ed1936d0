/* SPDX-License-Identifier: MIT
 * gguf_config.c - see gguf_config.h. What the keys of the format cannot say is refused: a model that is read
 * as another one gives wrong numbers. */
#include "lab/model/gguf_config.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"

enum { NAME = 200, QUANTIZATION_VERSION = 2, WHOLE_MOST = INT32_MAX };

/* The value of a key or of "object.key"; NULL: absent or null. */
static const json_t *find(const json_t *config, const char *key) {
  char first[64];
  const char *dot = strchr(key, '.');
  if (dot == NULL) {
    const json_t *value = json_object_get(config, key);
    return json_is_null(value) ? NULL : value;
  }
  snprintf(first, sizeof first, "%.*s", (int)(dot - key), key);
  return find(json_object_get(config, first), dot + 1);
}

int64_t bs_gguf_config_int(const json_t *config, const char *key) {
  const json_t *value = find(config, key);
  return json_is_integer(value) ? json_integer_value(value) : 0;
}

int64_t bs_gguf_config_head(const json_t *config, const bs_gguf_arch *arch) {
  const int64_t own = bs_gguf_config_int(config, "head_dim");
  const int64_t heads = bs_gguf_config_int(config, arch->family->is_gpt2 ? "n_head" : "num_attention_heads");
  const int64_t width = bs_gguf_config_int(config, arch->family->is_gpt2 ? "n_embd" : "hidden_size");
  return own > 0 ? own : heads > 0 ? width / heads : 0;
}

static int32_t refuse(const char *key, const char *why, bs_error *err) {
  bs_error_set(err, BS_UNSUPPORTED, "BS-GGUF-CONFIG", "config.json: key '%s' %s", key, why);
  bs_error_hint(err, "--weights of run, bench and generate rounds the folder's weights without a file");
  return BS_UNSUPPORTED;
}

static int is_text(const json_t *config, const char *key, const char *text) {
  const char *is = json_string_value(find(config, key));
  return is != NULL && strcmp(is, text) == 0;
}

/* The object with the rule of rotary angles; NULL: none. */
static const json_t *rope_of(const json_t *config) {
  const json_t *rope = find(config, "rope_parameters");
  return rope != NULL ? rope : find(config, "rope_scaling");
}

static int32_t check_rope(const json_t *config, bs_error *err) {
  const json_t *rope = rope_of(config);
  const char *key = find(rope, "rope_type") != NULL ? "rope_type" : "type";
  if (rope == NULL || find(rope, key) == NULL || is_text(rope, key, "default") ||
      is_text(rope, key, "linear"))
    return BS_OK;
  return refuse("rope_scaling", "has a rule that is not written as GGUF: default and linear are", err);
}

int32_t bs_gguf_config_arch(const json_t *config, const bs_gguf_arch **out_arch, bs_error *err) {
  static const char *const zeros[] = {"attention_bias", "mlp_bias", "scale_attn_by_inverse_layer_idx",
                                      "add_cross_attention"};
  const char *type = json_string_value(find(config, "model_type"));
  const char *arch = type == NULL ? "" : strcmp(type, "mistral") == 0 ? "llama" : type;
  *out_arch = bs_gguf_arch_of((bs_span){arch, strlen(arch)});
  if (*out_arch == NULL) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-GGUF-ARCH", "model_type '%.60s' is not written as GGUF",
                 type != NULL ? type : "");
    bs_error_hint(err, "known: %s", BS_GGUF_ARCHS);
    return BS_UNSUPPORTED;
  }
  for (size_t i = 0; i < sizeof zeros / sizeof zeros[0]; i++)
    if (json_is_true(find(config, zeros[i])))
      return refuse(zeros[i], "is true, which GGUF has no key for", err);
  if (json_is_false(find(config, "scale_attn_weights")))
    return refuse("scale_attn_weights", "is false, which GGUF has no key for", err);
  const char *key = (*out_arch)->family->is_gpt2 ? "activation_function" : "hidden_act";
  if (find(config, key) != NULL && !is_text(config, key, (*out_arch)->family->is_gpt2 ? "gelu_new" : "silu"))
    return refuse(key, "differs from the one that GGUF has for this model", err);
  if (strcmp(arch, "llama") != 0 && json_is_true(find(config, "use_sliding_window")))
    return refuse("use_sliding_window", "is true, which GGUF has no key for in this model", err);
  return (*out_arch)->family->is_gpt2 ? BS_OK : check_rope(config, err);
}

/* The value in config.json for a key of the table; NULL: it has none. */
static const json_t *value_of(const json_t *config, const bs_gguf_arch *arch, const char *name) {
  const json_t *value = find(config, name);
  if (strcmp(name, "sliding_window") == 0 && !is_text(config, "model_type", "mistral")) return NULL;
  if (value == NULL && strcmp(name, "rope_theta") == 0) value = find(rope_of(config), "rope_theta");
  if (value == NULL && strncmp(name, "rope_scaling.", 13) == 0) value = find(rope_of(config), name + 13);
  (void)arch;
  return value;
}

static int32_t put_value(const char *name, const char *folder, const json_t *value,
                         enum bs_gguf_config_kind kind, bs_gguf_keys *keys, bs_error *err) {
  if (kind == BS_GGUF_CONFIG_REAL) {
    if (!json_is_number(value)) return refuse(folder, "is no number", err);
    bs_gguf_put_f32(keys, name, (float)json_number_value(value));
    return BS_OK;
  }
  const json_int_t whole = json_is_integer(value) ? json_integer_value(value) : -1;
  if (whole < 0 || whole > WHOLE_MOST) return refuse(folder, "is no whole number", err);
  bs_gguf_put_u32(keys, name, (uint32_t)whole);
  return BS_OK;
}

static void put_rest(const json_t *config, const bs_gguf_arch *arch, bs_gguf_keys *keys) {
  char name[NAME];
  const int64_t head = bs_gguf_config_head(config, arch);
  if (arch->family->is_gpt2) {
    snprintf(name, sizeof name, "%s.feed_forward_length", arch->name);
    if (find(config, "n_inner") == NULL)
      bs_gguf_put_u32(keys, name, (uint32_t)(4 * bs_gguf_config_int(config, "n_embd")));
    return;
  }
  const json_t *part = find(config, "partial_rotary_factor"), *rope = rope_of(config);
  const double share = json_is_number(part) ? json_number_value(part) : 1.0;
  snprintf(name, sizeof name, "%s.rope.dimension_count", arch->name);
  bs_gguf_put_u32(keys, name, (uint32_t)((double)head * share));
  snprintf(name, sizeof name, "%s.attention.value_length", arch->name);
  if (bs_gguf_config_int(config, "head_dim") > 0) bs_gguf_put_u32(keys, name, (uint32_t)head);
  snprintf(name, sizeof name, "%s.rope.scaling.type", arch->name);
  if (is_text(rope, "rope_type", "linear") || is_text(rope, "type", "linear"))
    bs_gguf_put_text(keys, name, "linear", 6);
}

int32_t bs_gguf_put_config(const json_t *config, const bs_gguf_arch *arch, bs_gguf_keys *keys,
                           bs_error *err) {
  bs_gguf_put_text(keys, "general.architecture", arch->name, strlen(arch->name));
  bs_gguf_put_text(keys, "general.type", "model", 5);
  bs_gguf_put_u32(keys, "general.quantization_version", QUANTIZATION_VERSION);
  for (const bs_gguf_config_key *k = bs_gguf_config_keys; k->key != NULL; k++) {
    const char *folder = arch->family->is_gpt2 ? k->gpt2 : k->llama;
    const json_t *value = folder != NULL ? value_of(config, arch, folder) : NULL;
    char name[NAME];
    if (value == NULL) continue;
    snprintf(name, sizeof name, "%s.%s", arch->name, k->key);
    const int32_t rc = put_value(name, folder, value, k->kind, keys, err);
    if (rc != BS_OK) return rc;
  }
  put_rest(config, arch, keys);
  return BS_OK;
}

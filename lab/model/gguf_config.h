/* SPDX-License-Identifier: MIT
 * gguf_config.h - config.json of a folder as metadata of GGUF. */
#ifndef BS_LAB_MODEL_GGUF_CONFIG_H
#define BS_LAB_MODEL_GGUF_CONFIG_H
#include <jansson.h>

#include "formats/gguf_names.h"
#include "formats/gguf_write.h"

/* The architecture of a model. BS_UNSUPPORTED: BS-GGUF-ARCH, or BS-GGUF-CONFIG with the key that the format
 * cannot hold. */
int32_t bs_gguf_config_arch(const json_t *config, const bs_gguf_arch **out_arch, bs_error *err);
int32_t bs_gguf_put_config(const json_t *config, const bs_gguf_arch *arch, bs_gguf_keys *keys, bs_error *err);
/* A whole number of config.json; 0: it is not there. */
int64_t bs_gguf_config_int(const json_t *config, const char *key);
/* The columns of a head. */
int64_t bs_gguf_config_head(const json_t *config, const bs_gguf_arch *arch);
#endif

/* SPDX-License-Identifier: MIT
 * hardware_device.c - see hardware_device.h. */
#include "lab/config/hardware_device.h"

#include <stdio.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/config/device_file.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "sim/ask.h"

#define TEXT "plugins.sim.device"

enum { TEXT_MOST = 4095 }; /* characters of a plugin's parameter */

/* Words for a real device, which older files have: "cuda", "cuda:1". */
static int is_older_word(const char *word) {
  static const char *const words[] = {"cpu", "cuda", "gpu", "mps", "xpu", "auto"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    const size_t n = strlen(words[i]);
    if (strncmp(word, words[i], n) == 0 && (word[n] == '\0' || word[n] == ':')) return 1;
  }
  return 0;
}

static const char *text_of(const bs_node *config, const char *path) {
  const bs_node *node = bs_config_find(config, path);
  return node != NULL && node->kind == BS_NODE_SCALAR && node->text != NULL ? node->text : "";
}

/* Is the backend that of the simulator, or is the simulator a plugin that may choose it? */
static int simulates(const bs_node *config) {
  const char *backend = text_of(config, "hardware.backend");
  const bs_node *plugins = bs_config_find(config, "plugin");
  if (strcmp(backend, "sim") == 0 || strncmp(backend, "virtual:", 8) == 0) return 1;
  if (plugins == NULL || plugins->kind != BS_NODE_LIST) return 0;
  for (const bs_node *item = plugins->first; item != NULL; item = item->next) {
    char id[64];
    if (item->kind != BS_NODE_SCALAR || item->text == NULL) continue;
    bs_plugin_id_of(item->text, id, sizeof id);
    if (strcmp(id, "sim") == 0) return 1;
  }
  return 0;
}

int bs_hardware_device_acts(const bs_node *config) {
  const char *word = text_of(config, BS_HARDWARE_DEVICE);
  return word[0] != '\0' && !is_older_word(word) && simulates(config);
}

/* A stored configuration has the text already, and repeats without the file. A device that was named later is
 * read. */
static int has_text(const bs_node *config) {
  const bs_node *word = bs_config_find(config, BS_HARDWARE_DEVICE), *text = bs_config_find(config, TEXT);
  if (text == NULL || text->kind != BS_NODE_SCALAR) return 0;
  return !(bs_node_from_file(text) && !bs_node_from_file(word));
}

/* The hardware file's own numbers, where it gives them too. */
static int32_t agrees(const bs_node *config, const sim_device *device, bs_error *err) {
  static const char *const keys[] = {"flops", "flops_f32", "flops_f64", "flops_f8", "mem_Bps", "launch_s"};
  sim_sums sums;
  sim_device_sums(device, &sums);
  int32_t rc = sim_ask_launch(device, &sums.launch, err);
  for (size_t i = 0; rc == BS_OK && i < sizeof keys / sizeof keys[0]; i++) {
    char path[48];
    double given = 0;
    snprintf(path, sizeof path, "plugins.sim.%s", keys[i]);
    const bs_node *node = bs_config_find(config, path);
    if (node == NULL || node->kind != BS_NODE_SCALAR || !bs_parse_f64(node->text, &given)) continue;
    rc = sim_sums_agree(&sums, keys[i], given, err);
    if (rc != BS_OK) bs_schema_where(node, err);
  }
  return rc;
}

int32_t bs_hardware_device_read(bs_node *config, const char *configs_dir, bs_error *err) {
  bs_device_file file = {0};
  if (!bs_hardware_device_acts(config) || has_text(config)) return BS_OK;
  const bs_node *word = bs_config_find(config, BS_HARDWARE_DEVICE);
  int32_t rc = bs_device_open(configs_dir, word->text, &file, err);
  if (rc != BS_OK && strcmp(err->id, "BS-CFG-NAME") == 0) bs_schema_where(word, err);
  if (rc == BS_OK && file.text.size > TEXT_MOST)
    rc = bs_schema_refuse(word, err, "BS-DEVICE-SIZE",
                          "device %s: its text has %zu characters, a parameter has at most %d", word->text,
                          file.text.size, (int)TEXT_MOST);
  if (rc == BS_OK) rc = agrees(config, &file.device, err);
  if (rc == BS_OK) rc = bs_config_set_text(config, TEXT, file.text.data, err);
  bs_device_close(&file);
  return rc;
}

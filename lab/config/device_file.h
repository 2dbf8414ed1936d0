/* SPDX-License-Identifier: MIT
 * device_file.h - the file of a device: YAML to the canonical text that sim/device.h reads, and errors with
 * the file and line. */
#ifndef BS_LAB_CONFIG_DEVICE_FILE_H
#define BS_LAB_CONFIG_DEVICE_FILE_H
#include "lab/yaml/config.h"
#include "sim/device.h"

typedef struct bs_device_file {
  bs_node *root; /* for places of errors */
  bs_text text;  /* canonical */
  sim_device device;
} bs_device_file;

/* These are fitted to measured times. */
typedef struct bs_device_constants {
  double launch_s, units, memory; /* launch.first_s, efficiency.units and .memory */
} bs_device_constants;

/* word: a name of configs/devices, or the path of a YAML file. configs_dir NULL: no such folder. BS_CONFIG:
 * no file of that name (with the nearest), or what is wrong in it. Free it in every case. */
int32_t bs_device_open(const char *configs_dir, const char *word, bs_device_file *out, bs_error *err);
void bs_device_close(bs_device_file *file);
/* A device of measured constants as the text of a file: the same parts, labelled calibrated, with this name.
 */
void bs_device_calibrated(const bs_device_file *file, const char *name, const bs_device_constants *constants,
                          bs_text *out);
/* Gives an error whose `where` is the path of an entry (sim/device.h) the place in the file, once. Returns
 * rc. */
int32_t bs_device_place_error(const bs_device_file *file, int32_t rc, bs_error *err);
#endif

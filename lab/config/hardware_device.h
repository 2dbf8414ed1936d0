/* SPDX-License-Identifier: MIT
 * hardware_device.h - hardware.device of a simulated backend: the file of the device becomes the parameter
 * plugins.sim.device, so that a record repeats without the file. */
#ifndef BS_LAB_CONFIG_HARDWARE_DEVICE_H
#define BS_LAB_CONFIG_HARDWARE_DEVICE_H
#include "lab/yaml/config.h"

#define BS_HARDWARE_DEVICE "hardware.device"

/* Does the key name a device of the simulator? Elsewhere, and as "cuda" or "cpu" of older files, it has no
 * effect. */
int bs_hardware_device_acts(const bs_node *config);
/* Sets plugins.sim.device of a composed tree. BS_CONFIG: no such device, or what is wrong in its file. */
int32_t bs_hardware_device_read(bs_node *config, const char *configs_dir, bs_error *err);
#endif

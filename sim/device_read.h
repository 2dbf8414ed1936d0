/* SPDX-License-Identifier: MIT
 * device_read.h - values of a device's text, each checked: what device.c and device_class.c share. A NULL
 * node leaves *out as it is, unless a function says otherwise. */
#ifndef BS_SIM_DEVICE_READ_H
#define BS_SIM_DEVICE_READ_H
#include "sim/device.h"
#include "sim/tree.h"

/* Fills err with BS_CONFIG and the path of the node. */
int32_t sim_read_wrong(const sim_node *node, bs_error *err, const char *id, const char *form, ...)
    __attribute__((format(printf, 4, 5)));
/* The same of a word that is not one of `known`: with the nearest, or all of them. */
int32_t sim_read_unknown(const sim_node *node, const char *word, const char *id, const char *what,
                         const char *const *known, uint32_t n, bs_error *err);
int32_t sim_read_kind(const sim_node *node, uint32_t kind, bs_error *err);
/* Is it a map of these fields alone? */
int32_t sim_read_fields(const sim_node *node, const char *const *known, uint32_t n, bs_error *err);
/* Letters, digits, - and _, the first a letter, no digit at the end of a key (pe3 is a place of pe). */
int32_t sim_read_name(const sim_node *node, const char *text, char *out, uint32_t size, bs_error *err);
int32_t sim_read_word(const sim_node *node, const char *const *words, uint32_t n, uint32_t *out,
                      bs_error *err);
int32_t sim_read_count(const sim_node *node, uint64_t low, uint64_t high, uint64_t *out, bs_error *err);
int32_t sim_read_real(const sim_node *node, double low, double high, double *out, bs_error *err);
/* ps of seconds from 0 to 1. */
int32_t sim_read_seconds(const sim_node *node, uint64_t *out, bs_error *err);
/* A rate above 1000, or inf. */
int32_t sim_read_rate(const sim_node *node, double *out, bs_error *err);
/* "a,b,c", or a list, of 1 to `most` whole numbers from 1 on. */
int32_t sim_read_counts(const sim_node *node, uint32_t *out, uint32_t most, uint32_t *out_n, bs_error *err);
int32_t sim_read_level(const sim_device *device, const sim_node *node, uint32_t *out, bs_error *err);
int32_t sim_read_classes(sim_device *device, const sim_node *parts, bs_error *err);
#endif

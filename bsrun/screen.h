/* SPDX-License-Identifier: MIT
 * screen.h - what a run of one point says to a person: at most 25 lines of at most 100 columns, made of the
 * records alone. */
#ifndef BSRUN_SCREEN_H
#define BSRUN_SCREEN_H
#include <jansson.h>

#include "blockshock/blockshock.h"

/* records: those of the phases that ran, in order; folders: their paths. */
int32_t screen_print(const json_t *records, const json_t *folders, bs_error *err);
/* "FASTER: 1.86 times as fast as dense on 1 core [1.70, 1.88]": a comparison of a record, the record's method
 * being the subject, in words. `other` is the arm that it was held against. Returns out. */
const char *screen_comparison(const json_t *comparison, const json_t *other, char *out, size_t size);
/* "dense on 1 core", "dense on all 2 cores": an arm of a record in words. Returns out. */
const char *screen_arm(const json_t *arm, char *out, size_t size);
/* "the mean of Y^2": a loss of a record in words. */
const char *screen_loss(const char *name);
#endif

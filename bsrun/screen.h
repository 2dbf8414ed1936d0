/* SPDX-License-Identifier: MIT
 * screen.h - what a run of one point says to a person: at most 25 lines of at most 100 columns, made of the
 * records alone. */
#ifndef BSRUN_SCREEN_H
#define BSRUN_SCREEN_H
#include <jansson.h>

#include "blockshock/blockshock.h"

/* records: those of the phases that ran, in order; folders: their paths. */
int32_t screen_print(const json_t *records, const json_t *folders, bs_error *err);
/* "the mean of Y^2": a loss of a record in words. */
const char *screen_loss(const char *name);
#endif

/* SPDX-License-Identifier: MIT
 * inside_words.h - the rows of `bsrun sim explain --inside` as a reader sees them: columns and sentences. */
#ifndef BS_LAB_SIM_INSIDE_WORDS_H
#define BS_LAB_SIM_INSIDE_WORDS_H
#include <jansson.h>

#include "core/base/text.h"
#include "lab/report/report.h"

extern const bs_field bs_inside_fields[];
extern const size_t bs_inside_n_fields;
/* "137.4 GFLOP" of a row's amount. */
void bs_inside_amount(const json_t *row, char out[32]);
/* Two or three lines: the device and the tile; the time and what binds; the launch. The last row of `rows` is
 * the total. */
void bs_inside_sentences(const json_t *rows, bs_text *out);
#endif

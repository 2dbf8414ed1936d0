/* SPDX-License-Identifier: MIT
 * short_names.h - words that stand for others: N is the key model.N, time the phase phase1_forward, 1100/0011
 * the mask complement_1100_0011. Any thread may call these; texts that they return are never freed. */
#ifndef BS_LAB_CONFIG_SHORT_NAMES_H
#define BS_LAB_CONFIG_SHORT_NAMES_H
#include <stddef.h>

enum { BS_SHORT_NAMES_MAX = 32 };

/* The configuration key of a short name, or the name itself. */
const char *bs_short_name_key(const char *name);
/* All short names, for the nearest spelling of one that is unknown; returns how many. */
size_t bs_short_names(const char *out[BS_SHORT_NAMES_MAX]);
/* The words of the phases, as --phase and phase.name take them beside 0 to 3 and the full names. */
#define BS_PHASE_WORDS "numbers, time, backward or train"
enum { BS_PHASE_NAMES = 4 };
extern const char *const bs_phase_full_names[BS_PHASE_NAMES], *const bs_phase_words[BS_PHASE_NAMES];
/* The one spelling of a phase or a mask where `path` is phase.name or mask.name; else, and of a word that is
 * neither, the text itself. */
const char *bs_full_name(const char *path, const char *text);
/* Is it a mask by its digits alone, as 1100/0011? */
int bs_is_mask_digits(const char *text);
#endif

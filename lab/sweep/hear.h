/* SPDX-License-Identifier: MIT
 * hear.h - a child process that opens plugins and says what it found: one that ends or hangs there costs its
 * answer alone. */
#ifndef BS_LAB_SWEEP_HEAR_H
#define BS_LAB_SWEEP_HEAR_H
#include "core/base/text.h"

/* Runs `say` in a child, which writes to fd, and takes all of it; a child that writes nothing for a minute is
 * killed. BS_NO_MEMORY (BS-SWEEP-FORK, BS-MEM). Free *out in any case. */
int32_t bs_hear_child(void (*say)(void *user, int fd), void *user, bs_text *out, bs_error *err);
#endif

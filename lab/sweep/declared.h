/* SPDX-License-Identifier: MIT
 * declared.h - the value "all" of an axis: an option of a method whose values the method declares
 * (method.overlap=all), or every collective algorithm (hardware.algorithm=all). `bsrun plugins knobs` lists
 * them. */
#ifndef BS_LAB_SWEEP_DECLARED_H
#define BS_LAB_SWEEP_DECLARED_H
#include <jansson.h>

#include "core/base/text.h"
#include "lab/config/compose.h"

/* Appends the knob's values to `values`, as texts in the order of their declaration. For a range with a step
 * (1:64+1) only the powers of two, or its first value if it has none. */
void bs_declared_values(const bs_knob *knob, json_t *values);

/* Replaces in `settings` (bs_axes_multiply) each point with "all" by one point for each value. The plugins
 * are opened in a child process. A point whose method does not declare the option is kept: the check of the
 * points refuses it. BS_USAGE (BS-SWEEP-POINTS) beyond BS_SWEEP_POINTS_MAX points; BS_UNAVAILABLE
 * (BS-SWEEP-DECLARED) if the child ends or is silent for a minute. */
int32_t bs_settings_expand(const bs_compose_request *request, bs_context *context, json_t *settings,
                           bs_error *err);
/* Runs `say` in a child process, where it may open plugins, and reads what it writes to fd. A child that
 * writes nothing for a minute is killed. BS_NO_MEMORY (BS-SWEEP-FORK, BS-MEM). Free *out in any case. */
int32_t bs_sweep_hear(void (*say)(void *user, int fd), void *user, bs_text *out, bs_error *err);
#endif
